//! Checks that the lines of a log of any bytes are read independently: each line gives
//! one entry, the same alone as after other lines.

#![no_main]

use libfuzzer_sys::fuzz_target;
use politesse_crawls::{CrawlLogEntry, CrawlLogFormat, CrawlLogReader, LoggedUrl};
use politesse_fuzz::time::{BOUND, within};

const FORMATS: [CrawlLogFormat; 3] = [
    CrawlLogFormat::Server,
    CrawlLogFormat::Scrapy,
    CrawlLogFormat::Heritrix,
];

fuzz_target!(|input: &[u8]| {
    let lines: Vec<_> = input.split_inclusive(|byte| *byte == b'\n').collect();
    for format in FORMATS {
        let entries = within(BOUND, || entries(input, Some(format)));
        assert_eq!(entries.len(), lines.len());
        for (line, entry) in lines.iter().zip(&entries) {
            assert_eq!(self::entries(line, Some(format)), [entry.clone()]);
            if let CrawlLogEntry::Request(request) = entry {
                let (LoggedUrl::Whole(url) | LoggedUrl::Path(url) | LoggedUrl::Tunnel(url)) =
                    &request.url;
                // An escape may decode to a replacement character of three bytes.
                assert!(url.len() <= 3 * line.len() + "https://".len());
            }
        }
    }
    // A detected format gives the same requests as the same format when it is given.
    let mut reader = CrawlLogReader::new(input, None);
    let mut found = Vec::new();
    while let Some(entry) = reader.next_entry().unwrap() {
        found.push(entry);
    }
    if let Some(format) = reader.format() {
        let is_request = |entry: &CrawlLogEntry| matches!(entry, CrawlLogEntry::Request(_));
        let given = entries(input, Some(format));
        let requests = |entries: Vec<CrawlLogEntry>| -> Vec<_> {
            entries.into_iter().filter(is_request).collect()
        };
        assert_eq!(requests(found), requests(given));
    }
});

fn entries(bytes: &[u8], format: Option<CrawlLogFormat>) -> Vec<CrawlLogEntry> {
    let mut reader = CrawlLogReader::new(bytes, format);
    let mut entries = Vec::new();
    while let Some(entry) = reader.next_entry().unwrap() {
        entries.push(entry);
    }
    entries
}
