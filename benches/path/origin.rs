//! Origin whose responses are made in advance and written in one piece.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Path of a request that the origin answers only when every client has sent one. From
/// then on, the proxy has one connection to the origin for each client.
pub(crate) const GATHERING: &str = "gather";

/// Addresses of the origin.
#[derive(Clone, Copy)]
pub(crate) struct OriginAddresses {
    pub(crate) plain: SocketAddr,
    pub(crate) tls: SocketAddr,
}

/// Responses, by the first segment of the path.
struct Pages(Vec<(&'static str, Vec<u8>)>);

impl Pages {
    fn make() -> Self {
        let filler = |bytes: usize| response("application/octet-stream", &vec![b'x'; bytes]);
        let html = response("text/html; charset=utf-8", page().as_bytes());
        Self(vec![
            (
                "robots.txt",
                response("text/plain", b"User-agent: *\nDisallow: /private/\n"),
            ),
            (GATHERING, filler(1)),
            ("1k", filler(1 << 10)),
            ("10k", filler(10 << 10)),
            ("1m", filler(1 << 20)),
            ("page", html),
        ])
    }

    /// Returns the response to a request, given its head.
    fn response(&self, head: &[u8]) -> io::Result<&[u8]> {
        let target = head.split(|&byte| byte == b' ').nth(1).unwrap_or_default();
        let segment = target
            .split(|&byte| byte == b'/')
            .nth(1)
            .unwrap_or_default();
        let page = self.0.iter().find(|(name, _)| name.as_bytes() == segment);
        let (_, response) = page.ok_or(io::ErrorKind::NotFound)?;
        Ok(response)
    }
}

/// Serves the pages until the process ends. `clients` is the number of clients that
/// gather.
///
/// # Errors
///
/// If no port is available.
pub(crate) async fn serve(tls: Arc<ServerConfig>, clients: usize) -> io::Result<OriginAddresses> {
    let pages = Arc::new(Pages::make());
    let gathering = Arc::new(tokio::sync::Barrier::new(clients));
    let plain = TcpListener::bind("127.0.0.1:0").await?;
    let secure = TcpListener::bind("127.0.0.1:0").await?;
    let addresses = OriginAddresses {
        plain: plain.local_addr()?,
        tls: secure.local_addr()?,
    };
    let site = Site { pages, gathering };
    tokio::spawn(site.clone().accept(plain, None));
    tokio::spawn(site.accept(secure, Some(TlsAcceptor::from(tls))));
    Ok(addresses)
}

#[derive(Clone)]
struct Site {
    pages: Arc<Pages>,
    gathering: Arc<tokio::sync::Barrier>,
}

impl Site {
    async fn accept(self, listener: TcpListener, tls: Option<TlsAcceptor>) {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let (site, tls) = (self.clone(), tls.clone());
            // If a connection breaks, its client reports the error.
            tokio::spawn(async move {
                match tls {
                    None => site.converse(stream).await,
                    Some(tls) => site.converse(tls.accept(stream).await?).await,
                }
            });
        }
    }

    async fn converse(self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let mut head = Vec::with_capacity(4096);
        while stream.read_buf(&mut head).await? > 0 {
            // The proxy sends its next request only after this response, so the head
            // ends the buffer.
            if !head.ends_with(b"\r\n\r\n") {
                continue;
            }
            let response = self.pages.response(&head)?;
            if head.starts_with(format!("GET /{GATHERING}").as_bytes()) {
                self.gathering.wait().await;
            }
            stream.write_all(response).await?;
            stream.flush().await?;
            head.clear();
        }
        Ok(())
    }
}

/// Returns a page of 30 KiB with a head of 3 KiB.
fn page() -> String {
    let mut page = String::from("<!DOCTYPE html><html lang=\"en\"><head><title>A page</title>\n");
    for name in ["description", "viewport", "author", "generator"]
        .iter()
        .cycle()
    {
        if page.len() + 90 > 3 << 10 {
            break;
        }
        let _ = writeln!(
            page,
            "<meta name=\"{name}\" content=\"words of a head that a parser must read\">"
        );
    }
    page.push_str("<meta name=\"robots\" content=\"noarchive, max-snippet:20\"></head><body>\n");
    while page.len() + 80 < 30 << 10 {
        page.push_str(
            "<p>Some <b>words</b> of <a href=\"/1k\">a page</a> that nobody reads.</p>\n",
        );
    }
    page.push_str("</body></html>\n");
    page
}

fn response(media_type: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "HTTP/1.1 200 OK\r\nDate: Sat, 21 Nov 2026 00:00:00 GMT\r\nServer: origin\r\n\
         Content-Type: {media_type}\r\nETag: \"5f3c\"\r\nCache-Control: max-age=60\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}
