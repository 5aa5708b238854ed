//! What is asked: what a robots.txt says to a crawler about a path.

use politesse_robots::crawler::ProductToken;

/// One question, the same in every dialect.
#[derive(Clone, Debug)]
pub struct Question {
    /// The robots.txt.
    pub body: Vec<u8>,
    /// The name of the crawler.
    pub agent: String,
    /// A path with its query, as sent.
    pub path: String,
}

impl Question {
    /// Returns the question that a text asks: the crawler on its first line,
    /// the path on its second, then the file. Seeds are written so, and any
    /// bytes can be read so.
    #[must_use]
    pub fn from_text(text: &[u8]) -> Self {
        let (agent, rest) = first_line(text);
        let (path, body) = first_line(rest);
        Self {
            body: body.to_vec(),
            agent: String::from_utf8_lossy(agent).into_owned(),
            path: String::from_utf8_lossy(path).into_owned(),
        }
    }

    /// Returns the crawler's token; none if no crawler could have it.
    ///
    /// A User-Agent gives no token with a `/` or `*`.
    #[must_use]
    pub fn token(&self) -> Option<ProductToken> {
        let is_odd = self.agent.contains(['/', '*']);
        let token = ProductToken::new(&self.agent).ok();
        token.filter(|_| !is_odd)
    }
}

fn first_line(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|&byte| byte == b'\n') {
        Some(end) => (&text[..end], &text[end + 1..]),
        None => (text, &[]),
    }
}
