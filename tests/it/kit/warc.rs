//! WARC archives, built record by record.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

/// An archive to which records are appended. In a compressed archive each record is a
/// gzip member.
#[derive(Default)]
pub(crate) struct Warc {
    pub(crate) bytes: Vec<u8>,
    /// Offsets at which the records begin.
    pub(crate) places: Vec<usize>,
    level: Option<u32>,
    records: usize,
}

/// User-Agent of every request for which no other is given.
pub(crate) const FOO: &str = "FooBot/1.0 (+https://foo.test)";

impl Warc {
    pub(crate) fn plain() -> Self {
        Self::default()
    }

    pub(crate) fn gzip(level: u32) -> Self {
        Self {
            level: Some(level),
            ..Self::default()
        }
    }

    /// Appends a record with these fields.
    pub(crate) fn record(&mut self, fields: &[(&str, &str)], body: impl AsRef<[u8]>) -> &mut Self {
        self.records += 1;
        let body = body.as_ref();
        let mut record = "WARC/1.0\r\n".to_owned();
        for (name, value) in fields {
            record.push_str(&format!("{name}: {value}\r\n"));
        }
        record.push_str(&format!(
            "WARC-Record-ID: <urn:test:{}>\r\nContent-Length: {}\r\n\r\n",
            self.records,
            body.len()
        ));
        let record = [record.as_bytes(), body, b"\r\n\r\n"].concat();
        self.places.push(self.bytes.len());
        match self.level {
            None => self.bytes.extend(record),
            Some(level) => {
                let mut member = GzEncoder::new(Vec::new(), Compression::new(level));
                member.write_all(&record).unwrap();
                self.bytes.extend(member.finish().unwrap());
            }
        }
        self
    }

    /// Appends the request of an exchange.
    pub(crate) fn request(&mut self, at: &str, url: &str, agent: Option<&str>) -> &mut Self {
        let agent = agent.map_or_else(String::new, |agent| format!("User-Agent: {agent}\r\n"));
        let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{agent}\r\n");
        let fields = [
            ("WARC-Type", "request"),
            ("WARC-Date", at),
            ("WARC-Target-URI", url),
        ];
        self.record(&fields, head)
    }

    /// Appends the response of an exchange.
    pub(crate) fn response(&mut self, at: &str, url: &str, message: impl AsRef<[u8]>) -> &mut Self {
        let fields = [
            ("WARC-Type", "response"),
            ("WARC-Date", at),
            ("WARC-Target-URI", url),
        ];
        self.record(&fields, message)
    }

    /// Appends a request by [`FOO`] and its response.
    pub(crate) fn exchange(&mut self, at: &str, url: &str, message: impl AsRef<[u8]>) -> &mut Self {
        self.request(at, url, Some(FOO)).response(at, url, message)
    }

    /// Appends a fetch of `https://h.test/robots.txt`.
    pub(crate) fn robots(&mut self, at: &str, body: &str) -> &mut Self {
        self.exchange(at, "https://h.test/robots.txt", ok(body))
    }

    /// Appends a fetch of a page.
    pub(crate) fn page(&mut self, at: &str, url: &str) -> &mut Self {
        self.exchange(at, url, ok("page"))
    }
}

/// Returns a response with status 200.
pub(crate) fn ok(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
