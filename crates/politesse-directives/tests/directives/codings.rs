//! Bodies in a content coding, made by encoders that the proxy does not contain.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

/// Every coding that is decoded, and two pairs. `raw` stands for `deflate` without the
/// zlib format, as some origins send it.
pub(crate) const CODINGS: [&str; 8] = [
    "gzip",
    "x-gzip",
    "deflate",
    "raw",
    "br",
    "zstd",
    "gzip, br",
    "zstd, deflate",
];

/// Returns the body in these codings, the first applied first.
pub(crate) fn coded(codings: &str, body: Vec<u8>) -> Vec<u8> {
    codings.split(", ").fold(body, |body, coding| match coding {
        "gzip" | "x-gzip" => written(GzEncoder::new(Vec::new(), Compression::best()), &body)
            .finish()
            .unwrap(),
        "deflate" => written(ZlibEncoder::new(Vec::new(), Compression::fast()), &body)
            .finish()
            .unwrap(),
        "raw" => written(DeflateEncoder::new(Vec::new(), Compression::best()), &body)
            .finish()
            .unwrap(),
        "br" => {
            let mut coded = Vec::new();
            written(
                brotli::CompressorWriter::new(&mut coded, 4096, 9, 22),
                &body,
            );
            coded
        }
        "zstd" => compress_to_vec(body.as_slice(), CompressionLevel::Fastest),
        other => panic!("{other}"),
    })
}

/// Returns the codings as `Content-Encoding` names them.
pub(crate) fn named(codings: &str) -> String {
    codings.replace("raw", "deflate")
}

fn written<W: Write>(mut encoder: W, body: &[u8]) -> W {
    encoder.write_all(body).unwrap();
    encoder
}
