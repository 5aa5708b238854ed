//! Where the configuration is found, and where certificates and the record lie
//! when nobody says otherwise. All of it is ours.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::process::Command;

use crate::kit::program::{Outcome, finish, politesse};
use crate::kit::proxy::{Config, Place, Proxy};

/// A user with a home, and another folder to work in.
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

    /// Writes a configuration where `name` says.
    fn configure(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Returns the program, working in `work`.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = politesse(&self.path("home"));
        command.current_dir(self.path("work")).args(arguments);
        command
    }

    async fn run(&self, arguments: &[&str]) -> Outcome {
        finish(self.command(arguments), b"").await
    }

    /// Reports whether nothing was written into the folder that the user works
    /// in.
    fn left_work_alone(&self) -> bool {
        std::fs::read_dir(self.path("work")).unwrap().count() == 0
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

const FREE_PORTS: [&str; 4] = [
    "--set",
    "proxy.listen=['127.0.0.1:0']",
    "--set",
    "admin.listen=127.0.0.1:0",
];

/// Returns a `serve` of this user, on free ports.
async fn serve(command: &mut Command) -> Vec<String> {
    command.args(FREE_PORTS).arg("serve");
    let command = std::mem::replace(command, Command::new("true"));
    let proxy = Proxy::start(Place::with(&Config::default()), command).await;
    let banner = proxy.banner().to_vec();
    proxy.stop().await;
    banner
}

#[tokio::test]
async fn without_a_configuration_all_that_is_written_lies_in_the_state_folder() {
    let user = User::new();
    let banner = serve(&mut user.command(&[])).await;
    let state = user.path("home/.local/state/politesse");
    assert!(user.left_work_alone());
    let lines = &banner[4..];
    let ca = shown(&state.join("certs/ca.pem"));
    assert_eq!(lines[0], "configuration: no file, built-in defaults");
    assert_eq!(
        lines[1],
        "enforcement.mode: \"enforce\", pace.profile: \"standard\""
    );
    assert_eq!(
        lines[2],
        format!("record: {}", shown(&state.join("data/audit.db")))
    );
    assert_eq!(lines[3], format!("CA: {ca}"));
    assert!(lines[4].starts_with("try: curl --proxy http://127.0.0.1:"));
    assert!(lines[4].ends_with(&format!(" --cacert {ca} https://example.com/")));
    let show = user.run(&["ca", "show"]).await;
    assert!(show.stdout.contains(&ca), "{show:?}");
    let audit = user.run(&["audit", "list", "--json"]).await;
    assert_eq!(audit.code, Some(0), "{audit:?}");
}

#[tokio::test]
async fn here_keeps_certificates_and_the_record_in_the_working_folder() {
    let user = User::new();
    user.configure("home/.config/politesse/politesse.toml", "nonsense");
    serve(&mut user.command(&["--here"])).await;
    assert!(user.path("work/certs/ca.pem").exists());
    assert!(user.path("work/data/audit.db").exists());
    assert!(!user.path("home/.local").exists());
    // start.sh says it already.
    let twice = user.run(&["--here", "config", "check", "--here"]).await;
    assert_eq!(twice.code, Some(0), "{twice:?}");
}

#[tokio::test]
async fn here_leaves_the_paths_of_a_named_file_relative_to_it() {
    let user = User::new();
    user.configure("own/politesse.toml", "");
    let file = shown(&user.path("own/politesse.toml"));
    let init = user.run(&["--here", "--config", &file, "ca", "init"]).await;
    assert_eq!(init.code, Some(0), "{init:?}");
    assert!(user.path("own/certs/ca.pem").exists());
    assert!(user.left_work_alone());
}

#[tokio::test]
async fn without_a_home_it_is_as_with_here() {
    let user = User::new();
    let mut command = user.command(&["ca", "init"]);
    command.env_remove("HOME");
    assert_eq!(finish(command, b"").await.code, Some(0));
    assert!(user.path("work/certs/ca.pem").exists());
}

#[tokio::test]
async fn a_start_without_a_home_warns_where_certificates_and_record_lie() {
    let user = User::new();
    let mut command = user.command(&FREE_PORTS);
    command.arg("serve").env_remove("HOME");
    let proxy = Proxy::start(Place::with(&Config::default()), command).await;
    let work = shown(&user.path("work"));
    let told = format!("certificates and record are in {work}. Set HOME");
    proxy.logged(&told).await;
    proxy.stop().await;
    // Not where the folder was chosen.
    let mut command = user.command(&[&FREE_PORTS[..], &["--here", "serve"]].concat());
    command.env_remove("HOME");
    let proxy = Proxy::start(Place::with(&Config::default()), command).await;
    assert!(!proxy.log().contains("Set HOME"), "{}", proxy.log());
    proxy.stop().await;
}

#[tokio::test]
async fn a_configuration_in_the_users_folder_has_its_data_in_the_state_folder() {
    let user = User::new();
    user.configure("conf/politesse/politesse.toml", "");
    let mut command = user.command(&[]);
    command
        .env("XDG_CONFIG_HOME", user.path("conf"))
        .env("XDG_STATE_HOME", user.path("state"));
    let banner = serve(&mut command).await;
    let file = shown(&user.path("conf/politesse/politesse.toml"));
    assert_eq!(banner[4], format!("configuration: {file}"));
    assert!(user.path("state/politesse/certs/ca.pem").exists());
    assert!(user.path("state/politesse/data/audit.db").exists());
    assert!(user.path("state/politesse/data/admin-token").exists());
    assert!(user.left_work_alone());
    assert_eq!(
        std::fs::read_dir(user.path("conf/politesse"))
            .unwrap()
            .count(),
        1
    );
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
        let outcome = user.run(arguments).await;
        assert_eq!(outcome.code, Some(2), "{arguments:?}: {outcome:?}");
        let place = format!("{}, line 2", shown(&user.path(name)));
        assert!(
            outcome.stderr.contains(&place),
            "{arguments:?}: {outcome:?}"
        );
    }
}

#[tokio::test]
async fn config_show_tells_the_file_and_the_folders() {
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
    assert!(
        found.starts_with(&format!("# Configuration file: {file}\n")),
        "{found}"
    );
}

#[tokio::test]
async fn a_certificate_that_other_users_cannot_read_is_told_with_the_command() {
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
    proxy.stop().await;
}

#[tokio::test]
async fn an_authority_of_the_working_folder_that_is_not_used_is_told() {
    let user = User::new();
    let init = user.run(&["--here", "ca", "init"]).await;
    assert_eq!(init.code, Some(0), "{init:?}");
    let mut command = user.command(&FREE_PORTS);
    command.arg("serve");
    let proxy = Proxy::start(Place::with(&Config::default()), command).await;
    proxy.logged("`politesse --here` uses them").await;
    proxy.stop().await;
}

/// Runs `script` as root where `/etc/politesse/politesse.toml` names a record of user 4711.
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
    let mut command = politesse(root.path());
    let program = command.as_std().get_program().to_owned();
    command = Command::new("unshare");
    command.args(["--mount", "sh", "-euc", &whole]).arg(program);
    command.current_dir(root.path()).env("HOME", root.path());
    finish(command, b"").await
}

#[tokio::test]
async fn root_makes_no_files_for_the_user_of_a_service() {
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
async fn a_user_beside_a_service_has_folders_of_its_own() {
    let user = "setpriv --reuid 1234 --regid 1234 --clear-groups";
    let script = format!("{user} ./program ca init; setpriv --reuid 4711 ./program config show");
    let outcome = beside_a_service(&script).await;
    let left_out = "/etc/politesse/politesse.toml is left out: its record in ";
    assert_eq!(outcome.stderr.matches(left_out).count(), 1, "{outcome:?}");
    let lines: Vec<_> = outcome.stdout.lines().collect();
    assert!(
        lines[0].contains("/.local/state/politesse/certs/ca.pem"),
        "{outcome:?}"
    );
    assert_eq!(
        lines[1],
        "# Configuration file: /etc/politesse/politesse.toml"
    );
}
