//! An upstream proxy that the tested proxy reaches origins through. It gives a fixed
//! answer to CONNECT, and after a 200 relays to an origin.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;

use super::raw_origin::read_head;
use super::server::Server;

/// A running parent proxy, which logs the heads of the requests it receives.
pub(crate) struct Parent {
    server: Server,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Parent {
    /// Starts a parent that answers every CONNECT with `answer`. If that is a 200, the
    /// connection is then relayed to `origin`.
    pub(crate) async fn start(answer: &str, origin: SocketAddr) -> Self {
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (log, answer) = (Arc::clone(&heads), answer.to_owned());
        let serve = move |stream| serve(stream, answer.clone(), (origin, Arc::clone(&log)));
        let server = Server::start(serve).await;
        Self { server, heads }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Returns the heads of all requests so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    answer: String,
    (origin, log): (SocketAddr, Arc<Mutex<Vec<String>>>),
) {
    let Some(head) = read_head(&mut stream, &mut Vec::new()).await else {
        return;
    };
    log.lock().unwrap().push(head);
    // The tested proxy may hang up as soon as it has read enough of the answer.
    if stream.write_all(answer.as_bytes()).await.is_err() {
        return;
    }
    if answer.contains("HTTP/1.1 200") {
        let mut origin = TcpStream::connect(origin).await.unwrap();
        let _ = copy_bidirectional(&mut stream, &mut origin).await;
    } else if answer.is_empty() {
        let _ = stream.read_u8().await;
    }
}
