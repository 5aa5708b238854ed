//! A listener on a free port of loopback, and the task that accepts its connections.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};

/// A running server, which stops accepting connections when it is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    accepting: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Starts a server that calls `serve` with each connection, in order of arrival. The
    /// future that it returns runs in a task of its own.
    pub(crate) async fn start<F>(mut serve: impl FnMut(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                tokio::spawn(serve(stream));
            }
        });
        Self { address, accepting }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
