//! Debian's nginx, Apache and lighttpd with default settings, each on its own port and in
//! a temporary folder, stopped when the test ends.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::addresses::free_address;
use super::{soon, until};

/// Web server program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Nginx,
    Apache,
    Lighttpd,
}

impl Kind {
    fn program(self) -> &'static str {
        match self {
            Self::Nginx => "/usr/sbin/nginx",
            Self::Apache => "/usr/sbin/apache2",
            Self::Lighttpd => "/usr/sbin/lighttpd",
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Nginx => &["-e", "error.log", "-g", "daemon off;", "-p", ".", "-c"],
            Self::Apache => &["-D", "FOREGROUND", "-d", ".", "-f"],
            Self::Lighttpd => &["-D", "-f"],
        }
    }

    /// Returns the minimal configuration: where to listen, what to serve and where to
    /// log. nginx and Apache, which the tests start as root, serve as `www-data`.
    fn configuration(self, port: u16, folder: &Path) -> String {
        let folder = folder.display();
        match self {
            Self::Nginx => format!(
                "user www-data;\npid nginx.pid;\nevents {{}}\nhttp {{\naccess_log access.log;\n\
                 client_body_temp_path t1;\nproxy_temp_path t2;\nfastcgi_temp_path t3;\n\
                 uwsgi_temp_path t4;\nscgi_temp_path t5;\n\
                 server {{ listen 127.0.0.1:{port}; root {folder}/root; }}\n}}\n"
            ),
            Self::Apache => format!(
                "ServerName o.test\nListen 127.0.0.1:{port}\nPidFile apache.pid\nUser www-data\n\
                 Group www-data\nLoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\n\
                 LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n\
                 DefaultRuntimeDir {folder}\nErrorLog error.log\nDocumentRoot {folder}/root\n\
                 CustomLog access.log \"%h %l %u %t \\\"%r\\\" %>s %b \\\"%{{Referer}}i\\\" \\\"%{{User-Agent}}i\\\"\"\n"
            ),
            Self::Lighttpd => format!(
                "server.port = {port}\nserver.bind = \"127.0.0.1\"\n\
                 server.document-root = \"{folder}/root\"\nserver.modules = (\"mod_accesslog\")\n\
                 server.errorlog = \"{folder}/error.log\"\naccesslog.filename = \"{folder}/access.log\"\n"
            ),
        }
    }
}

/// A running web server.
pub(crate) struct WebServer {
    folder: TempDir,
    address: SocketAddr,
    process: Child,
}

impl WebServer {
    /// Starts a server for `files`, pairs of path and content.
    pub(crate) async fn start(kind: Kind, files: &[(&str, String)]) -> Self {
        assert!(
            Path::new(kind.program()).exists(),
            "{kind:?} is missing; tests/run installs it"
        );
        let folder = TempDir::with_prefix("politesse-server-").unwrap();
        let root = folder.path().join("root");
        for (path, content) in files {
            let file = root.join(path.trim_start_matches('/'));
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, content).unwrap();
        }
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let address = free_address();
        let configuration = kind.configuration(address.port(), folder.path());
        let file = folder.path().join("server.conf");
        std::fs::write(&file, configuration).unwrap();
        let process = Command::new(kind.program())
            .args(kind.arguments())
            .arg(&file)
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        until("server", async || TcpStream::connect(address).await.ok()).await;
        Self {
            folder,
            address,
            process,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests `target` without a proxy, and returns status and body.
    pub(crate) async fn direct(&self, target: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: o.test\r\nUser-Agent: direct\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A server may reset the connection after its answer.
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        (status.unwrap_or(0), body.to_owned())
    }

    /// Stops the server, so that its access log is complete, and returns the log.
    pub(crate) async fn access_log(mut self) -> String {
        self.terminate();
        soon("end of a server", self.process.wait()).await.unwrap();
        std::fs::read_to_string(self.folder.path().join("access.log")).unwrap()
    }

    /// Sends SIGTERM to a server that runs, which also ends its workers.
    fn terminate(&self) {
        if let Some(pid) = self.process.id() {
            let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.terminate();
    }
}
