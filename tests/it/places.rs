//! Default locations of the configuration, the certificates and the record. The rules
//! are ours.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::process::Command;

use crate::kit::assert_contains;
use crate::kit::program::{Outcome, finish, isolated, politesse};
use crate::kit::proxy::{Config, Place, Proxy};

/// A user with a home folder and a working folder.
struct User {
    root: TempDir,
}

impl User {
    fn new() -> Self {
        let root = TempDir::new().unwrap();
        for folder in ["home", "work"] {
            std::fs::create_dir(root.path().join(folder)).unwrap();
        }
        Self { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().canonicalize().unwrap().join(name)
    }

    /// Writes a configuration file to `name`, relative to the user's root.
    fn configure(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Returns a command that runs the program in the working folder.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = politesse(&self.path("home"));
        command.current_dir(self.path("work")).args(arguments);
        command
    }

    async fn run(&self, arguments: &[&str]) -> Outcome {
        finish(self.command(arguments), b"").await
    }

    /// Reports whether the working folder is still empty.
    fn left_work_alone(&self) -> bool {
        std::fs::read_dir(self.path("work")).unwrap().count() == 0
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Starts `serve` on free ports.
async fn serve(mut command: Command) -> Proxy {
    let free_ports = ["proxy.listen=['127.0.0.1:0']", "admin.listen=127.0.0.1:0"];
    for value in free_ports {
        command.args(["--set", value]);
    }
    command.arg("serve");
    // The command runs in a folder of its own, not in this one.
    Proxy::start(Place::with(&Config::default()), command).await
}

#[tokio::test]
async fn without_a_configuration_all_files_are_in_the_state_folder() {
    let user = User::new();
    let proxy = serve(user.command(&[])).await;
    let state = user.path("home/.local/state/politesse");
    assert!(user.left_work_alone());
    let lines = &proxy.banner()[4..];
    let ca = shown(&state.join("certs/ca.pem"));
    assert_eq!(lines[0], "configuration: no file, built-in defaults");
    let modes = "enforcement.mode: \"enforce\", pace.profile: \"standard\"";
    assert_eq!(lines[1], modes);
    let record = shown(&state.join("data/audit.db"));
    assert_eq!(lines[2], format!("record: {record}"));
    assert_eq!(lines[3], format!("CA: {ca}"));
    assert!(lines[4].starts_with("try: curl --proxy http://127.0.0.1:"));
    assert!(lines[4].ends_with(&format!(" --cacert {ca} https://example.com/")));
    let show = user.run(&["ca", "show"]).await;
    assert!(show.stdout.contains(&ca), "{show:?}");
    user.run(&["audit", "list", "--json"]).await.assert_code(0);
}

#[tokio::test]
async fn with_here_certificates_and_the_record_are_in_the_working_folder() {
    let user = User::new();
    user.configure("home/.config/politesse/politesse.toml", "nonsense");
    serve(user.command(&["--here"])).await.stop().await;
    assert!(user.path("work/certs/ca.pem").exists());
    assert!(user.path("work/data/audit.db").exists());
    assert!(!user.path("home/.local").exists());
    // start.sh passes `--here`, so a user may repeat it.
    let twice = user.run(&["--here", "config", "check", "--here"]).await;
    assert_eq!(twice.code, Some(0), "{twice:?}");
}

#[tokio::test]
async fn with_here_paths_stay_relative_to_a_named_configuration_file() {
    let user = User::new();
    user.configure("own/politesse.toml", "");
    let file = shown(&user.path("own/politesse.toml"));
    let init = user.run(&["--here", "--config", &file, "ca", "init"]).await;
    assert_eq!(init.code, Some(0), "{init:?}");
    assert!(user.path("own/certs/ca.pem").exists());
    assert!(user.left_work_alone());
}

#[tokio::test]
async fn a_start_without_a_home_warns_that_files_are_in_the_working_folder() {
    let user = User::new();
    let mut command = user.command(&[]);
    command.env_remove("HOME");
    let proxy = serve(command).await;
    let work = shown(&user.path("work"));
    let told = format!("certificates and record are in {work}. Set HOME");
    proxy.logged(&told).await;
    assert!(user.path("work/certs/ca.pem").exists());
    proxy.stop().await;
    // With `--here` the user chose the folder, so the warning is left out.
    let mut command = user.command(&["--here"]);
    command.env_remove("HOME");
    let proxy = serve(command).await;
    assert!(!proxy.log().contains("Set HOME"), "{}", proxy.log());
}

#[tokio::test]
async fn a_users_configuration_keeps_its_data_in_the_state_folder() {
    let user = User::new();
    user.configure("conf/politesse/politesse.toml", "");
    let mut command = user.command(&[]);
    command
        .env("XDG_CONFIG_HOME", user.path("conf"))
        .env("XDG_STATE_HOME", user.path("state"));
    let proxy = serve(command).await;
    let file = shown(&user.path("conf/politesse/politesse.toml"));
    assert_eq!(proxy.banner()[4], format!("configuration: {file}"));
    assert!(user.path("state/politesse/certs/ca.pem").exists());
    assert!(user.path("state/politesse/data/audit.db").exists());
    assert!(user.path("state/politesse/data/admin-token").exists());
    assert!(user.left_work_alone());
    let files = std::fs::read_dir(user.path("conf/politesse")).unwrap();
    assert_eq!(files.count(), 1);
}

#[tokio::test]
async fn every_command_finds_the_users_configuration() {
    let user = User::new();
    let name = "home/.config/politesse/politesse.toml";
    user.configure(name, "[proxy]\nvia = 3\n");
    for arguments in [
        &["serve"][..],
        &["run", "--", "true"],
        &["audit", "list"],
        &["audit", "events"],
        &["audit", "verify"],
        &["ca", "show"],
        &["pace", "show"],
        &["check", "http://o.test/"],
        &["directives", "-"],
        &["config", "show"],
        &["config", "check"],
    ] {
        let outcome = user.run(arguments).await.assert_code(2);
        let place = format!("{}, line 2", shown(&user.path(name)));
        assert!(
            outcome.stderr.contains(&place),
            "{arguments:?}: {outcome:?}"
        );
    }
}

#[tokio::test]
async fn config_show_names_the_file_and_the_folders() {
    let user = User::new();
    let nothing = user.run(&["config", "show"]).await.stdout;
    let file = shown(&user.path("home/.config/politesse/politesse.toml"));
    let told = format!(
        "# Configuration file: none; there is no {file} and no /etc/politesse/politesse.toml for \
             this user\n\
             # ca_cert, ca_key, store and token_file are relative to {}\n\
             # other paths are relative to {}\n",
        shown(&user.path("home/.local/state/politesse")),
        shown(&user.path("work"))
    );
    assert!(nothing.starts_with(&told), "{nothing}");
    user.configure("home/.config/politesse/politesse.toml", "");
    let found = user.run(&["config", "show"]).await.stdout;
    assert_eq!(
        found.lines().next(),
        Some(&*format!("# Configuration file: {file}"))
    );
}

#[tokio::test]
async fn a_ca_certificate_that_other_users_cannot_read_is_logged_with_the_fix() {
    let place = Place::with(&Config::default());
    assert_eq!(place.run(&["ca", "init"]).await.code, Some(0));
    let cert = place.path("certs/ca.pem");
    std::fs::set_permissions(&cert, Permissions::from_mode(0o600)).unwrap();
    let proxy = place.start().await;
    let told = format!("chmod 644 {}", cert.display());
    proxy.logged(&told).await;
    let place = proxy.stop().await;
    std::fs::set_permissions(&cert, Permissions::from_mode(0o644)).unwrap();
    let proxy = place.start().await;
    assert!(!proxy.log().contains("chmod"), "{}", proxy.log());
}

#[tokio::test]
async fn an_unused_ca_in_the_working_folder_is_logged() {
    let user = User::new();
    user.run(&["--here", "ca", "init"]).await.assert_code(0);
    let proxy = serve(user.command(&[])).await;
    proxy.logged("`politesse --here` uses them").await;
}

/// Runs `script` as root, with a `/etc/politesse/politesse.toml` whose record belongs to
/// user 4711.
async fn beside_a_service(script: &str) -> Outcome {
    let root = TempDir::new().unwrap();
    std::fs::set_permissions(root.path(), Permissions::from_mode(0o777)).unwrap();
    let whole = format!(
        "mount -t tmpfs none /etc
         mkdir -p /etc/politesse service/record
         chmod 0755 service; chmod 0700 service/record; chown -R 4711 service
         echo \"audit.store = 'sqlite:$HOME/service/record/audit.db'\" >/etc/politesse/politesse.toml
         cp \"$0\" program
         {script}"
    );
    let mut command = isolated("unshare", root.path());
    command.args(["--mount", "sh", "-euc", &whole]);
    command.arg(env!("CARGO_BIN_EXE_politesse"));
    finish(command, b"").await
}

#[tokio::test]
async fn root_creates_no_files_in_the_record_of_a_service_user() {
    let script = "./program ca init || echo $?; ./program run -- true || echo $?
                      find service -type f; ./program config show | head -n 1";
    let outcome = beside_a_service(script).await;
    let refused = "service/record belongs to the user with uid 4711, and this is root";
    assert_eq!(outcome.stderr.matches(refused).count(), 2, "{outcome:?}");
    assert_eq!(
        outcome.stdout,
        "2\n2\n# Configuration file: /etc/politesse/politesse.toml\n"
    );
}

#[tokio::test]
async fn another_user_does_not_use_the_configuration_of_a_service() {
    let user = "setpriv --reuid 1234 --regid 1234 --clear-groups";
    let script = format!("{user} ./program ca init; setpriv --reuid 4711 ./program config show");
    let outcome = beside_a_service(&script).await;
    let left_out = "/etc/politesse/politesse.toml is left out: its record in ";
    assert_eq!(outcome.stderr.matches(left_out).count(), 1, "{outcome:?}");
    let lines: Vec<_> = outcome.stdout.lines().collect();
    assert_contains(lines[0], "/.local/state/politesse/certs/ca.pem");
    let found = "# Configuration file: /etc/politesse/politesse.toml";
    assert_eq!(lines[1], found);
}
