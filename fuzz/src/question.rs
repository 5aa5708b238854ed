//! Question about a robots.txt: whether it allows a crawler a path.

use politesse_robots::crawler::ProductToken;

/// Question that can be asked in every dialect.
#[derive(Clone, Debug)]
pub struct Question {
    /// Bytes of the robots.txt.
    pub body: Vec<u8>,
    /// Name of the crawler.
    pub agent: String,
    /// Path with its query, as sent.
    pub path: String,
}

impl Question {
    /// Parses a question: the crawler on the first line, the path on the second, then
    /// the file. Seeds have this form. Any bytes can be parsed.
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

    /// Returns the crawler's token, or `None` if no crawler could have it.
    ///
    /// A User-Agent never gives a token that contains `/` or `*`.
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
