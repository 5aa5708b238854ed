use std::ops::ControlFlow;

use http::{HeaderMap, HeaderValue};

use super::*;
use samples::{
    base64, encoded, gzip, gzip_with_fields, page, raw_deflate, zlib, zstd_block, zstd_frame,
    zstd_skippable,
};

mod samples;

/// Maximum number of bytes decoded, as by default.
const LIMIT: usize = 512 * 1024;

fn decoding(codings: &str, limit: usize) -> Result<Option<BodyDecoder>, PartialReason> {
    let mut fields = HeaderMap::new();
    for line in codings.split('\n') {
        fields.append(CONTENT_ENCODING, HeaderValue::from_str(line).unwrap());
    }
    BodyDecoder::for_fields(&fields, limit)
}

/// Decodes a body that arrives in chunks. Returns the output and how the body ended.
fn decoded(
    codings: &str,
    bytes: &[u8],
    chunk_bytes: usize,
) -> (Vec<u8>, Result<(), PartialReason>) {
    let mut decoding = decoding(codings, LIMIT).unwrap().unwrap();
    let mut decoded = Vec::new();
    let mut take = |piece: &[u8]| {
        decoded.extend_from_slice(piece);
        ControlFlow::Continue(())
    };
    let mut chunks = bytes.chunks(chunk_bytes);
    let pushed = chunks.try_for_each(|chunk| decoding.push(chunk, &mut take));
    let finished = decoding.finish();
    assert_eq!(pushed.and(finished), finished);
    (decoded, finished)
}

/// Sizes of the chunks into which a body is cut.
const CHUNK_BYTES: [usize; 5] = [usize::MAX, 1, 2, 7, 1000];

fn check_whole(codings: &str, bytes: &[u8], page: &[u8]) {
    for chunk_bytes in CHUNK_BYTES {
        let (out, end) = decoded(codings, bytes, chunk_bytes);
        assert!(out == page, "{codings} by {chunk_bytes}");
        assert_eq!(end, Ok(()), "{codings} by {chunk_bytes}");
    }
}

fn check_cut(codings: &str, bytes: &[u8], page: &[u8]) {
    for cut in 1..bytes.len() {
        let (out, end) = decoded(codings, &bytes[..cut], 100);
        assert!(page.starts_with(&out), "{codings} cut at {cut}");
        assert_eq!(end, Err(PartialReason::Corrupt), "{codings} cut at {cut}");
    }
}

macro_rules! decoding {
    ($($name:ident: $codings:literal $bytes:expr;)*) => {$(
        #[test]
        fn $name() {
            let bytes: Vec<u8> = $bytes;
            check_whole($codings, &bytes, &page());
            check_cut($codings, &bytes, &page());
        }
    )*};
}

// RFC 9110, section 8.4.1; RFC 1950 to 1952, RFC 7932, RFC 8878.
decoding! {
    gzip_is_decoded: "gzip" gzip(&page());
    x_gzip_is_gzip: "X-GZip" gzip(&page());
    gzip_may_have_optional_fields: "gzip" gzip_with_fields(&page());
    deflate_may_have_the_wrapping_of_zlib: "deflate" zlib(&page());
    deflate_may_have_no_wrapping: "deflate" raw_deflate(&page());
    br_is_decoded: "br" base64(samples::BROTLI);
    br_with_a_window_of_16_mib_is_decoded: "br"
        [base64(samples::BROTLI_FLUSHED), base64(samples::BROTLI_FLUSHED_REST)].concat();
    zstd_is_decoded: "Zstd" base64(samples::ZSTD);
    zstd_may_have_a_checksum: "zstd"
        [base64(samples::ZSTD_FLUSHED), base64(samples::ZSTD_FLUSHED_REST)].concat();
    zstd_of_another_encoder_is_decoded: "zstd" encoded("zstd", &page());
    zstd_blocks_may_be_raw_or_repeated: "zstd" {
        let page = page();
        let start = zstd_block(0, 6, &page[..6]);
        let again = zstd_block(1, 1, &page[6..7]);
        zstd_frame(&[start, again, zstd_block(0, page.len() - 7, &page[7..])].concat())
    };
    codings_are_listed_in_the_order_applied: "identity, gzip,\ndeflate" zlib(&gzip(&page()));
}

#[test]
fn any_two_codings_stack() {
    let codings = ["gzip", "deflate", "br", "zstd"];
    for inner in codings {
        for outer in codings {
            let bytes = encoded(outer, &encoded(inner, &page()));
            check_whole(&format!("{inner}, {outer}"), &bytes, &page());
        }
    }
}

// RFC 1952, section 2.2; RFC 8878, section 3.1.
#[test]
fn a_body_may_have_several_members_or_frames() {
    let page = page();
    let (start, rest) = page.split_at(700);
    let none = gzip(b"");
    let members = [none.clone(), gzip(start), none, gzip_with_fields(rest)];
    check_whole("gzip", &members.concat(), &page);
    // Padding, which some readers skip and others take for the end of the body.
    let padded = [gzip(start), vec![0; 512], gzip(rest), vec![0; 3]];
    check_whole("gzip", &padded.concat(), &page);
    let skipped = [zstd_skippable(b"skipped"), zstd_skippable(b"")].concat();
    let frames = [
        skipped.clone(),
        encoded("zstd", start),
        skipped,
        zstd_frame(&zstd_block(0, rest.len(), rest)),
        zstd_frame(&[]),
    ];
    check_whole("zstd", &frames.concat(), &page);
}

// Browsers' practice.
#[test]
fn bytes_after_the_end_are_ignored() {
    let page = page();
    let ends = [
        ("gzip", gzip(&page)),
        ("deflate", zlib(&page)),
        ("deflate", raw_deflate(&page)),
        ("br", base64(samples::BROTLI)),
    ];
    for (coding, whole) in ends {
        for garbage in [
            &b"\n"[..],
            b"\x1f",
            b"\x1f\x8b",
            b"\x1f\x8b\x07 and so on",
            &[0; 99],
        ] {
            check_whole(coding, &[&whole[..], garbage].concat(), &page);
        }
    }
    let (out, end) = decoded("zstd", &[&base64(samples::ZSTD)[..], b"\n"].concat(), 1);
    assert_eq!((out, end), (page, Err(PartialReason::Corrupt)));
}

// An origin sends the usual fields even with an empty body.
#[test]
fn an_empty_body_is_complete() {
    for codings in ["gzip", "deflate", "br", "zstd", "gzip, br, deflate, zstd"] {
        assert_eq!(decoded(codings, b"", 1), (vec![], Ok(())));
    }
}

// RFC 9110, section 8.4.
#[test]
fn unknown_and_too_many_codings_are_not_decoded() {
    for codings in [
        "dcb", "dcz", "compress", "gzip, x", "gzip;q=1", "\u{e9}", "none",
    ] {
        assert_eq!(
            decoding(codings, LIMIT).unwrap_err(),
            PartialReason::Coding,
            "{codings}"
        );
    }
    let five = "gzip, gzip, gzip, gzip, gzip";
    assert_eq!(decoding(five, LIMIT).unwrap_err(), PartialReason::Coding);
    assert!(decoding(&five[6..], LIMIT).unwrap().is_some());
    for codings in ["", "identity", " , Identity\n"] {
        assert!(decoding(codings, LIMIT).unwrap().is_none(), "{codings}");
    }
    assert!(
        BodyDecoder::for_fields(&HeaderMap::new(), LIMIT)
            .unwrap()
            .is_none()
    );
}

#[test]
fn flushed_bytes_are_output_at_once() {
    let page = page();
    let mut gzip = flate2::Compress::new(flate2::Compression::default(), false);
    let mut flushed = Vec::with_capacity(4096);
    let sync = flate2::FlushCompress::Sync;
    gzip.compress_vec(&page[..1500], &mut flushed, sync)
        .unwrap();
    let header = b"\x1f\x8b\x08\0\0\0\0\0\0\x03";
    let starts = [
        ("gzip", [header, &flushed[..]].concat()),
        ("deflate", flushed),
        ("br", base64(samples::BROTLI_FLUSHED)),
        ("zstd", base64(samples::ZSTD_FLUSHED)),
        (
            "zstd",
            zstd_frame(&zstd_block(0, 5000, &page[..1500]))[..1509].to_vec(),
        ),
    ];
    for (coding, start) in starts {
        for chunk_bytes in CHUNK_BYTES {
            let (out, end) = decoded(coding, &start, chunk_bytes);
            assert!(out == page[..1500], "{coding} by {chunk_bytes}");
            assert_eq!(end, Err(PartialReason::Corrupt));
        }
    }
}

// RFC 9659, section 3; RFC 7932, section 9.1.
#[test]
fn windows_are_bounded() {
    let frame = |header: &[u8]| [&[0x28, 0xB5, 0x2F, 0xFD], header, &[1, 0, 0]].concat();
    let rows = [
        ("zstd", frame(&[0, 13 << 3]), Ok(())),
        ("zstd", frame(&[0, 13 << 3 | 1]), Err(PartialReason::Window)),
        ("zstd", frame(&[0, 0xFF]), Err(PartialReason::Window)),
        (
            "zstd",
            frame(&[0xA0, 0, 0, 0x80, 0]),
            Err(PartialReason::Corrupt),
        ),
        (
            "zstd",
            frame(&[0xA0, 1, 0, 0x80, 0]),
            Err(PartialReason::Window),
        ),
        (
            "zstd",
            frame(&[0xE0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]),
            Err(PartialReason::Window),
        ),
        ("br", b"\x11\x1e\x03".to_vec(), Err(PartialReason::Window)),
        ("br", b"\x3f".to_vec(), Ok(())),
    ];
    for (coding, bytes, expected) in rows {
        assert_eq!(decoded(coding, &bytes, 1).1, expected, "{bytes:x?}");
    }
}

// RFC 8878, section 3.1.1.2.4; found by the fuzz target `decoders`. A raw block is
// output as it arrives, so each piece of it may be short.
#[test]
fn a_raw_block_is_no_longer_than_the_window() {
    let page = page();
    // A single segment of 93 or 256 bytes; a window of 1 or 1.5 KiB.
    let rows = [
        (&[0x20, 93][..], 93),
        (&[0, 0], 1024),
        (&[0, 4], 1536),
        (&[0x60, 0, 0], 256),
    ];
    for (header, window) in rows {
        for (size, fits) in [(window, true), (window + 1, false)] {
            let start = [&[0x28, 0xB5, 0x2F, 0xFD], header].concat();
            let block = zstd_block(0, size, &page[..size]);
            let bytes = [start, block, vec![1, 0, 0]].concat();
            let (length, end) = match fits {
                true => (size, Ok(())),
                false => (0, Err(PartialReason::Corrupt)),
            };
            for chunk_bytes in CHUNK_BYTES {
                let decoded = decoded("zstd", &bytes, chunk_bytes);
                assert_eq!(decoded, (page[..length].to_vec(), end), "{header:?} {size}");
            }
        }
    }
}

// RFC 8878, section 3.1.1.1.3.
#[test]
fn a_body_that_needs_a_dictionary_is_not_decoded() {
    let frame = |header: &[u8]| [&[0x28, 0xB5, 0x2F, 0xFD], header, &[1, 0, 0]].concat();
    let rows = [
        (frame(&[1, 0, 7]), Err(PartialReason::Coding)),
        (frame(&[3, 0, 0, 0, 0, 1]), Err(PartialReason::Coding)),
        (frame(&[2, 0, 0, 0]), Ok(())),
        (frame(&[8, 0]), Err(PartialReason::Corrupt)),
    ];
    for (bytes, expected) in rows {
        assert_eq!(decoded("zstd", &bytes, 1).1, expected, "{bytes:x?}");
    }
}

#[test]
fn bytes_of_another_format_are_corrupt() {
    for coding in ["gzip", "deflate", "br", "zstd"] {
        for chunk_bytes in CHUNK_BYTES {
            let (out, end) = decoded(coding, b"<!doctype html><title>plain", chunk_bytes);
            assert_eq!(
                (out, end),
                (vec![], Err(PartialReason::Corrupt)),
                "{coding}"
            );
        }
    }
}

#[test]
fn a_checksum_that_differs_is_corrupt() {
    for (coding, mut bytes) in [("gzip", gzip(b"page")), ("deflate", zlib(b"page"))] {
        let at = bytes.len() - 5;
        bytes[at] ^= 1;
        assert_eq!(
            decoded(coding, &bytes, 1).1,
            Err(PartialReason::Corrupt),
            "{coding}"
        );
    }
}

// A raw stream that begins with a stored block whose padding looks like a zlib header.
#[test]
fn a_raw_stream_may_look_like_zlib_at_first() {
    let stored = b"\x78\x01\x00\xfe\xff!\x01\x02\x00\xfd\xffab";
    check_whole("deflate", stored, b"!ab");
}

/// More zeros than any stage may output.
fn zeros() -> Vec<u8> {
    vec![0; 10_000_000]
}

fn bombs() -> Vec<(&'static str, Vec<u8>)> {
    let repeated = zstd_block(1, 128 * 1024, &[0]).repeat(80);
    // Literals made of one byte, repeated 2^20 - 1 times (RFC 8878, 3.1.1.3.1.1).
    let literals = zstd_block(2, 5, &[0xFD, 0xFF, 0xFF, 0, 0]);
    // 98,047 sequences with no data for them (3.1.1.3.2.1).
    let sequences = zstd_block(2, 5, &[0, 0xFF, 0xFF, 0xFF, 0]);
    vec![
        ("gzip", gzip(&zeros())),
        ("gzip, gzip", gzip(&gzip(&zeros()))),
        ("deflate", zlib(&zeros())),
        ("br", base64(samples::BROTLI_ZEROS)),
        ("zstd", base64(samples::ZSTD_ZEROS)),
        ("zstd", zstd_frame(&repeated)),
        ("zstd, gzip", gzip(&zstd_frame(&repeated))),
        ("zstd", zstd_frame(&literals)),
        ("zstd", zstd_frame(&sequences)),
    ]
}

/// Most memory that decoding a bomb may take: the largest tables of br, and a few times
/// the limit.
const MEMORY_MAX: u64 = 6 * 1024 * 1024;

// Ours: a field that names thousands of codings does not make a decoder for each.
#[test]
fn too_many_codings_allocate_no_decoders() {
    let many = "gzip,".repeat(50_000);
    let info = allocation_counter::measure(|| {
        assert!(matches!(decoding(&many, LIMIT), Err(PartialReason::Coding)));
    });
    assert!(info.bytes_max < 1024 * 1024, "{info:?}");
}

// Ours: a decompression bomb takes a bounded amount of memory.
#[test]
fn a_bomb_costs_no_more_than_the_limit_allows() {
    for (codings, bomb) in bombs() {
        for chunk_bytes in [usize::MAX, 1] {
            let (mut handed, mut end) = (0, Ok(()));
            let info = allocation_counter::measure(|| {
                let mut decoding = decoding(codings, LIMIT).unwrap().unwrap();
                let mut take = |piece: &[u8]| {
                    handed += piece.len();
                    ControlFlow::Continue(())
                };
                let mut chunks = bomb.chunks(chunk_bytes);
                end = chunks.try_for_each(|chunk| decoding.push(chunk, &mut take));
                assert_eq!(decoding.memory(), 0);
            });
            let is_sham = handed == 0 && end == Err(PartialReason::Corrupt);
            assert!(is_sham || handed == LIMIT && end == Err(PartialReason::HeadLimit));
            let took = info.bytes_max;
            assert!(took <= MEMORY_MAX, "{codings}: {took}");
        }
    }
}

// Empty members, frames and blocks: 1,024 are allowed.
#[test]
fn the_number_of_empty_parts_is_limited() {
    let members = |times| gzip(b"").repeat(times);
    let frames = |times| zstd_skippable(b"").repeat(times);
    let in_frame = |times| zstd_frame(&zstd_block(0, 0, b"").repeat(times));
    let rows = [
        ("gzip, deflate", zlib(&members(1000)), zlib(&members(1030))),
        ("zstd", frames(1024), frames(1025)),
        ("zstd", in_frame(1022), in_frame(1023)),
    ];
    for (codings, few, many) in rows {
        for chunk_bytes in CHUNK_BYTES {
            assert_eq!(decoded(codings, &few, chunk_bytes), (vec![], Ok(())));
            let end = Err(PartialReason::Corrupt);
            assert_eq!(decoded(codings, &many, chunk_bytes), (vec![], end));
        }
    }
}

// Empty blocks with fixed codes, of ten bits each (RFC 1951, section 3.2.6). A backend
// that rebuilds the tables takes 3 microseconds per block, and some 30 unoptimized.
#[test]
#[expect(clippy::disallowed_methods, reason = "the time taken is the subject")]
fn empty_blocks_take_little_time() {
    let four_blocks: u64 = (0..4).map(|at| 2 << (10 * at)).sum();
    let blocks = four_blocks.to_le_bytes()[..5].repeat(50_000);
    let began = std::time::Instant::now();
    let body = [&blocks[..], &[3, 0]].concat();
    assert_eq!(decoded("deflate", &body, usize::MAX), (vec![], Ok(())));
    assert!(began.elapsed() < std::time::Duration::from_secs(2));
}

#[test]
fn a_body_of_exactly_the_limit_is_decoded() {
    let page = vec![b'x'; LIMIT];
    for coding in ["gzip", "deflate", "zstd"] {
        let (out, end) = decoded(coding, &encoded(coding, &page), usize::MAX);
        assert_eq!((out.len(), end), (LIMIT, Ok(())));
    }
}

#[test]
fn decoding_stops_once_the_receiver_has_enough() {
    let mut decoding = decoding("gzip", LIMIT).unwrap().unwrap();
    let bytes = gzip(&zeros());
    for _ in 0..3 {
        let mut take = |_: &[u8]| ControlFlow::Break(());
        assert_eq!(decoding.push(&bytes, &mut take), Ok(()));
        assert_eq!((decoding.finish(), decoding.memory()), (Ok(()), 0));
    }
}

#[test]
fn an_error_is_final() {
    let mut decoding = decoding("gzip", LIMIT).unwrap().unwrap();
    let mut take = |_: &[u8]| ControlFlow::Continue(());
    for bytes in [&b"no gzip"[..], &gzip(b"page")] {
        assert_eq!(decoding.push(bytes, &mut take), Err(PartialReason::Corrupt));
    }
    assert_eq!(decoding.finish(), Err(PartialReason::Corrupt));
}

#[test]
fn output_before_a_fault_does_not_depend_on_the_chunks() {
    let page = page().repeat(40);
    for (coding, whole) in [("gzip", gzip(&page)), ("deflate", zlib(&page))] {
        // A reserved block type in place of the last bytes (RFC 1951, 3.2.3).
        let mut bytes = whole[..whole.len() - 20].to_vec();
        bytes.extend([0xFF; 20]);
        let by_bytes = decoded(coding, &bytes, 1);
        assert!(2 * 32 * 1024 < by_bytes.0.len());
        assert_eq!(by_bytes.1, Err(PartialReason::Corrupt));
        for chunk_bytes in CHUNK_BYTES {
            assert!(decoded(coding, &bytes, chunk_bytes) == by_bytes);
        }
    }
}
