//! Pages in every coding. Codings that no crate of ours can encode were encoded with
//! Python's `brotli` 1.2 and `zstandard` 0.25, and are in base64.

use std::io::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

/// `brotli.compress(page)`.
pub(super) const BROTLI: &str = "
GzkKACwOeNPg1V8GAe6EPjeYGOMEEaWsteeveKjKDS9dwsjSp2fOpEPBLvZWpN7XEvsYdNJYuJboGEO3eQ0RzygL
NGIQWzeostmvLe32+LJepPKQ5Rubr2ivpb/p1HODdkgB4gHGCx0f6HcYGD0H1rexegWntxD9oY4G/wNlS7gHzxEa
SNIGjsggxjiQA1twZA0uOIemkPQ2AitdVYGwkIQGJ7TDMJDDrDEO5sA5MdZhGZzDnpD0E0JXeqpCwyIG85RvDzjq
NIOLyAFjGQdyxA6MZR3akXOQJMkMsaJGLLCro/WCbX9e8Qx7GPO9XwfVki3nd1rwfLMcOHLNiRvO3HLH5VoU4koE
SbJJkUOaXPKyZJXSAw==";

/// `c = brotli.Compressor(quality=5, lgwin=24)`;
/// `c.process(page[:1500]) + c.flush()`.
pub(super) const BROTLI_FLUSHED: &str = "
j+0CAMSszZRlEIbLptOMQhj4Xq26ge0y3VuLkBw1Px4nfhM00Vo3HnmM6TaRGB7hJRTiRnd1lmy9H5t5PS69TTeF
ffTnw/VUPTfn4XtyL9f5vXnmwMroPvxL/pOhbkpzn3ebegsoTkBcwPGEPCcDdDkUZuAacIP0gDAYRUhDKDBJ4A4q
XuBAHUIgQhZYFrEb0qzEFZiEDuigO6KXFL2DwVdGB9upyzlCCIEIIZAgBApCoE6MMMJiddIs3kuaxfkyAA==";

/// Continues [`BROTLI_FLUSHED`]: `c.process(page[1500:]) + c.finish()`.
pub(super) const BROTLI_FLUSHED_REST: &str = "
0UUAQCByW6qEJJ7HC78xQrJUq7ppbTNEo7EaDmMWRQwODAuGNFipg/E87DgG5TYeuRBFg27jDSI4pBh7slSODCoy
tpaqls9gWKJFljizXUEqbqOZ5HuwyKKobLsUVq7oULTyGE0XNbjdw3w+UdTclfvvC57P6yv+a7qHe81vXbruspdz
S53JbR+d0HsxsAMTa1hgJ9axgSXLQryEBBJIIIEEEkj4gqMGx6xGEQ==";

/// `brotli.compress(bytes(10_000_000))`.
pub(super) const BROTLI_ZEROS: &str = "
y///P/gnAOKxQCD3/i//LDHwTwDEYRGAjiMG";

/// `zstandard.ZstdCompressor(level=3).compress(page)`.
pub(super) const ZSTD: &str = "
KLUv/WA6CYULAPYQMx1QZ+uNEgpUPIIYIS+HzkvERgjHJUnF+qUqmJkdBi4AJwAoAFA56AwKhCgOEkaDL4fxh3Lx
j7CIvhgCiUR33MDz+Mi7Z0B3LyZ/GFcSX5gGgAublvV2b6NVxa2XWWMrrW5SrZvi7l2kqqy1Yq2XYpU2Ke3GvaoD
PwSzYAp+EuZSeAKlge9JatyMWRevsiZWbUbKjJRV48bNlq3dtUut2pU2LyZ/nKOqqqqqjS2VmleV4wKMH28M0yDj
EhF4insJYxKOewg3JDJl8dJfBmmoIZBXyikqVIYDQCMRSeYSQCAYCCqcIfiE4BhFBEUY9wMcZoqoQGAfjhyaGliG
00K9At8lPIcwBgJUizcATJptkxwS+Md/mge7GB7VuHIpAlAxYb+v4VO8oFQyggZY6OWG1nkscWjQmzItqGH3kiQy
t5AK3inBt70jzxLvmXaKU8Z7xDn4JhaWxejaFH6ApeUc+iVbcpD8XyeVNZ8Ks1IB";

/// `c = zstandard.ZstdCompressor(level=3, write_checksum=True).compressobj()`;
/// `c.compress(page[:1500]) + c.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)`.
pub(super) const ZSTD_FLUSHED: &str = "
KLUv/QRYNAcAcskdHGA1bgOlj9DXGtjr6qrHMAD2bbfI7pQBGVpBsFxf6ldX+73SX7/ymU903MT5tHgpPV6Xkzdl
/ggRF+cuTrVp9bqYnPKIRSvNMZBRHAjgUJrmCP0sRL/WPP1cO1w/RKFhHDOYAGn3mMeQpDVDnOEtRDsBb3BIAiw8
IJDTgqQDHxbs1wrxw4IpUrsfLtjXCvHDgv0aCnGv3Bd7g7jfJO6HrGDOlga/mngv92VfK0QPC9ZrpRBny40vHIin
IHiNeS0hPCQYrxHCh4FgptcGIQAfIpgnxPkYIb4DBJPW/f91+ENJ9pc=";

/// Continues [`ZSTD_FLUSHED`]: `c.compress(page[1500:]) + c.flush()`.
pub(super) const ZSTD_FLUSHED_REST: &str = "
ZQYA0ocZG4BXHZgl2EpsiBCkAXSYgFm2vv2lpz8pzgADAa0gLaSUbdu2mZIgx7rhSS0AJDTTIbQ30CsOMwq0aWmJ
Rx21NAQ+GWkym7ipgjusOmpgUGrymkXpYF/K7+SG7+P2euG/8BF29qWwLCAgQwmRBxwaJKLkIGyzh21xwL6GbMYg
Wxa2TwGbE7INQcgucrkLu4jlLGwRy+HF7Jc8/jnIYLZIgTxSWLQmF6XlbahQWjT5XrnzYooXrBcrueB8MWAL0liv
KUQ5Gus1ggoBh5rXZA==";

/// `zstandard.ZstdCompressor(level=3).compress(bytes(10_000_000))`.
pub(super) const ZSTD_ZEROS: &str = "
KLUv/YBYgJaYAFQAABAAAAEA+/85wAICABAAAgAQAAIAEAACABAAAgAQAAIAEAACABAAAgAQAAIAEAACABAAAgAQ
AAIAEAACABAAAgAQAAIAEAACABAAAgAQAAIAEAACABAAAgAQAAIAEAACABAAAgAQAAIAEAACABAAAgAQAAIAEAAC
ABAAAgAQAAIAEAACABAAAgAQAAIAEAACABAAAgAQAAIAEAACABAAAgAQAAIAEAACABAAAgAQAAIAEAACABAAAgAQ
AAIAEAACABAAAgAQAAIAEAACABAAAgAQAAIAEAACABAAAgAQAAIAEAACABAAAgAQAAIAEAACABAAAgAQAAIAEAAC
ABAAAgAQAAIAEAACABAAAgAQAAIAEAACABAAAgAQAAIAEAACABAAAgAQAAIAEAACABAAAgAQAAIAEAADtAQA";

/// Returns the page that the samples encode.
pub(super) fn page() -> Vec<u8> {
    let link = |i| {
        format!(
            "<link rel=alternate hreflang=x{i} href=\"/{}/page\">",
            i * i
        )
    };
    let line = |i| format!("<p>Line {i} of the page.</p>");
    let links: String = (0..40).map(link).collect();
    let lines: String = (0..20).map(line).collect();
    let head = format!("<title>T</title>{links}<meta name=robots content=noindex>");
    format!("<!doctype html><html><head>{head}</head><body>{lines}</body></html>").into()
}

pub(super) fn base64(text: &str) -> Vec<u8> {
    BASE64_STANDARD.decode(text.replace('\n', "")).unwrap()
}

/// Encodes with the named coding; br without compression.
pub(super) fn encoded(coding: &str, bytes: &[u8]) -> Vec<u8> {
    match coding {
        "gzip" => gzip(bytes),
        "deflate" => zlib(bytes),
        "br" => stored_brotli(bytes),
        _ => compress_to_vec(bytes, CompressionLevel::Fastest),
    }
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(super) fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(super) fn raw_deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// gzip with every optional field in its header (RFC 1952, section 2.3).
pub(super) fn gzip_with_fields(page: &[u8]) -> Vec<u8> {
    let plain = gzip(page);
    let (fixed, data) = plain.split_at(10);
    let fields = b"\x03\x00abcname\x00comment\x00";
    let header = [&fixed[..3], &[0b1_1111], &fixed[4..], fields].concat();
    let mut checksum = flate2::Crc::new();
    checksum.update(&header);
    [&header, &checksum.sum().to_le_bytes()[..2], data].concat()
}

/// Encodes as br with a window of 64 KiB: one uncompressed block and an empty last one
/// (RFC 7932, sections 9.1 and 9.2).
fn stored_brotli(bytes: &[u8]) -> Vec<u8> {
    let header = (u32::try_from(bytes.len()).unwrap() - 1) << 4 | 1 << 20;
    [&header.to_le_bytes()[..3], bytes, &[3]].concat()
}

/// Makes a zstd block from its kind (0 raw, 1 repeated, 2 compressed), its size and its
/// content (RFC 8878, section 3.1.1.2).
pub(super) fn zstd_block(kind: usize, size: usize, body: &[u8]) -> Vec<u8> {
    [&(size << 3 | kind << 1).to_le_bytes()[..3], body].concat()
}

/// Makes a zstd frame with a window of 8 MiB from `blocks` and an empty last block.
pub(super) fn zstd_frame(blocks: &[u8]) -> Vec<u8> {
    [
        &[0x28, 0xB5, 0x2F, 0xFD, 0, 13 << 3][..],
        blocks,
        &[1, 0, 0],
    ]
    .concat()
}

/// Makes a skippable zstd frame (RFC 8878, section 3.1.2).
pub(super) fn zstd_skippable(bytes: &[u8]) -> Vec<u8> {
    let size = u32::try_from(bytes.len()).unwrap().to_le_bytes();
    [&[0x5F, 0x2A, 0x4D, 0x18][..], &size, bytes].concat()
}
