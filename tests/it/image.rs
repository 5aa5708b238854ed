//! `contrib/image` and `contrib/kubernetes`: their files agree with the configuration and
//! with each other. `tests/full.sh` builds and runs the image, and validates the manifest
//! against the schemas of Kubernetes, which are large.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use toml::Table;

use crate::kit::assert_contains;
use crate::kit::checkout::{done, root, text, yaml};
use crate::kit::program::politesse;

const IMAGE: &str = "contrib/image/politesse.toml";
const MANIFEST: &str = "contrib/kubernetes/politesse.yaml";

/// Returns the effective configuration of a file, defaults included.
async fn configuration(file: &Path) -> Table {
    let mut show = politesse(Path::new("/"));
    show.arg("--config").arg(file).args(["config", "show"]);
    done(show).await.parse().unwrap()
}

/// Returns the arguments of an instruction of the `Dockerfile`.
fn instruction(name: &str) -> String {
    let image = text("contrib/image/Dockerfile");
    let (_, rest) = image.split_once(&format!("\n{name} ")).expect(name);
    rest.lines().next().unwrap().to_owned()
}

/// The objects of the manifest, as read by a real YAML parser.
struct Manifest(Vec<Value>);

impl Manifest {
    async fn read() -> Self {
        Self(yaml(MANIFEST).await)
    }

    fn object(&self, kind: &str, name: &str) -> &Value {
        let mut objects = self.0.iter();
        let found =
            objects.find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("{kind} {name}"))
    }

    fn pod(&self) -> &Value {
        &self.object("Deployment", "politesse")["spec"]["template"]["spec"]
    }

    fn configuration_file(&self) -> &str {
        let map = self.object("ConfigMap", "politesse");
        map["data"]["politesse.toml"].as_str().unwrap()
    }
}

/// Returns the port of an address, or of the first address of a list.
fn port(address: &toml::Value) -> u64 {
    let address = address.as_array().map_or(address, |list| &list[0]);
    let port = address.as_str().unwrap().rsplit(':').next().unwrap();
    port.parse().unwrap()
}

/// Asserts that `config check` accepts `configuration`, with its absolute paths moved to
/// `folder`.
async fn assert_valid(folder: &Path, configuration: &str) {
    let local = |path: &str| folder.join(path).to_str().unwrap().to_owned();
    let moved = configuration
        .replace("/var/lib/politesse", &local("data"))
        .replace("/etc/politesse-ca", &local("secret"));
    std::fs::write(folder.join("politesse.toml"), moved).unwrap();
    let mut check = politesse(folder);
    check.args(["config", "check"]);
    done(check).await;
}

// Ours: publishing the port must not create an open proxy or expose the dashboard.
#[tokio::test]
async fn the_image_writes_only_to_its_volume_and_serves_only_private_networks() {
    let volume = instruction("VOLUME");
    let configuration = configuration(&root().join(IMAGE)).await;
    for (section, key) in [
        ("https", "ca_cert"),
        ("https", "ca_key"),
        ("audit", "store"),
        ("admin", "token_file"),
    ] {
        let path = configuration[section][key].as_str().unwrap();
        let path = path.trim_start_matches("sqlite:");
        assert!(path.starts_with(&format!("{volume}/")), "{key}: {path}");
    }
    assert_eq!(instruction("WORKDIR"), volume);
    assert_eq!(instruction("USER"), "10001:10001");
    let owned = format!("--chown={} volume {volume}", instruction("USER"));
    assert!(text("contrib/image/Dockerfile").contains(&owned), "{owned}");
    let exposed: u64 = instruction("EXPOSE").parse().unwrap();
    assert_eq!(exposed, port(&configuration["proxy"]["listen"]));
    // Only SIGTERM makes the proxy drain.
    assert_eq!(instruction("STOPSIGNAL"), "SIGTERM");
    let folder = TempDir::with_prefix("politesse-image-").unwrap();
    assert_valid(folder.path(), &text(IMAGE)).await;

    let clients = toml::Value::from(vec!["private", "loopback"]);
    assert_eq!(configuration["proxy"]["clients"], clients);
    let admin = configuration["admin"]["listen"].as_str().unwrap();
    assert!(admin.starts_with("127.0.0.1:"), "{admin}");
    // The path at which the program looks by default.
    let path = "\"$root/etc/politesse/politesse.toml\"";
    assert_contains(&text("contrib/image/build"), path);
}

// Ours: the image has no shell, so its commands must run the program directly.
#[tokio::test]
async fn the_commands_of_the_image_exist_in_the_program() {
    let health = instruction("HEALTHCHECK");
    let health = health.split(" CMD ").nth(1).unwrap();
    let start = [instruction("ENTRYPOINT"), instruction("CMD")];
    let [program, serve] = start.map(|words| serde_json::from_str::<Vec<String>>(&words).unwrap());
    let health: Vec<String> = serde_json::from_str(health).unwrap();
    assert_eq!(health[..1], program);
    for command in [&serve[0], &health[1]] {
        let mut help = politesse(root());
        help.args([command, "--help"]);
        done(help).await;
    }
    let path = format!("\"$root{}\"", program[0]);
    assert_contains(&text("contrib/image/build"), &path);
}

// Ours: ports, mounts and times of the pod fit the image and the configuration.
#[tokio::test]
async fn the_manifest_agrees_with_the_image_and_its_own_configuration() {
    let manifest = Manifest::read().await;
    let folder = TempDir::with_prefix("politesse-kubernetes-").unwrap();
    let plain = folder.path().join("plain.toml");
    std::fs::write(&plain, manifest.configuration_file()).unwrap();
    let configuration = configuration(&plain).await;
    let pod = manifest.pod();
    let container = &pod["containers"][0];
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(container["image"], format!("politesse:{version}"));
    let image = format!("image: politesse:{version}\n");
    assert_contains(&text("contrib/compose/compose.yaml"), &image);

    let (proxy, admin) = (&configuration["proxy"], &configuration["admin"]);
    let ports = json!([
        { "name": "proxy", "containerPort": port(&proxy["listen"]) },
        { "name": "admin", "containerPort": port(&admin["listen"]) },
    ]);
    assert_eq!(container["ports"], ports);
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(container[probe]["httpGet"]["port"], "admin", "{probe}");
    }
    let seconds = |key: &str| -> u64 {
        let text = proxy[key].as_str().unwrap();
        text.trim_end_matches('s').parse().unwrap()
    };
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(seconds("drain_time") + seconds("shutdown_timeout") < grace);

    // Paths in the configuration are below mounts of the pod.
    let mount = |name| {
        named(&container["volumeMounts"], name)["mountPath"]
            .as_str()
            .unwrap()
    };
    assert_eq!(mount("configuration"), "/etc/politesse");
    assert_eq!(mount("data"), instruction("VOLUME"));
    for made in [&configuration["audit"]["store"], &admin["token_file"]] {
        let path = made.as_str().unwrap().trim_start_matches("sqlite:");
        assert!(path.starts_with(&format!("{}/", mount("data"))), "{path}");
    }
    let files = &named(&pod["volumes"], "ca")["secret"]["items"];
    for (item, key) in ["ca_cert", "ca_key"].into_iter().enumerate() {
        let path = format!("{}/{}", mount("ca"), files[item]["path"].as_str().unwrap());
        assert_eq!(configuration["https"][key].as_str(), Some(&*path));
    }
    assert_eq!(files.as_array().unwrap().len(), 2, "{files}");
}

/// Returns the object called `name` in a list.
fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let mut objects = list.as_array().unwrap().iter();
    let found = objects.find(|object| object["name"] == name);
    found.unwrap_or_else(|| panic!("{name} is not in {list}"))
}

// Ours: only one process may write the record, and it runs without privileges.
#[tokio::test]
async fn the_deployment_has_one_pod_without_privileges() {
    let manifest = Manifest::read().await;
    let deployment = &manifest.object("Deployment", "politesse")["spec"];
    assert_eq!(deployment["replicas"], 1);
    assert_eq!(deployment["strategy"]["type"], "Recreate");
    let pod = manifest.pod();
    let user = instruction("USER");
    let (user, _) = user.split_once(':').unwrap();
    let user: u64 = user.parse().unwrap();
    let context = &pod["securityContext"];
    for key in ["runAsUser", "runAsGroup", "fsGroup"] {
        assert_eq!(context[key], user, "{key}");
    }
    assert_eq!(context["runAsNonRoot"], true);
    // "Always" would make the files of the record accessible to the group at each start.
    assert_eq!(context["fsGroupChangePolicy"], "OnRootMismatch");
    assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(pod["automountServiceAccountToken"], false);
    let context = json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"] },
    });
    assert_eq!(pod["containers"][0]["securityContext"], context);
}

// Ours: the network policies leave a crawler no way around the proxy.
#[tokio::test]
async fn a_crawler_pod_can_reach_only_the_proxy_port() {
    let manifest = Manifest::read().await;
    let labels =
        &manifest.object("Deployment", "politesse")["spec"]["template"]["metadata"]["labels"];
    let service = &manifest.object("Service", "politesse")["spec"];
    assert_eq!(service["selector"], *labels);
    assert_eq!(service["ports"][0]["targetPort"], "proxy");
    let port = &manifest.pod()["containers"][0]["ports"][0]["containerPort"];
    assert_eq!(service["ports"][0]["port"], *port);

    let crawler = json!({ "matchLabels": { "politesse": "crawler" } });
    let ports = json!([{ "protocol": "TCP", "port": port }]);
    let crawlers = &manifest.object("NetworkPolicy", "politesse-crawlers")["spec"];
    let only_way = json!({
        "podSelector": crawler,
        "policyTypes": ["Egress"],
        "egress": [{ "to": [{ "podSelector": { "matchLabels": labels } }], "ports": ports }],
    });
    assert_eq!(*crawlers, only_way);
    let proxy = &manifest.object("NetworkPolicy", "politesse")["spec"];
    assert_eq!(proxy["podSelector"]["matchLabels"], *labels);
    let from_crawlers = json!({ "from": [{ "podSelector": crawler }], "ports": ports });
    assert_eq!(proxy["ingress"][0], from_crawlers);
}

// Ours: the commands in the header of the manifest create the secret that it mounts.
#[tokio::test]
async fn the_documented_ca_init_command_creates_the_secret() {
    let manifest = Manifest::read().await;
    let folder = TempDir::with_prefix("politesse-kubernetes-").unwrap();
    let head = text(MANIFEST);
    let make = head
        .lines()
        .find_map(|line| line.strip_prefix("#   politesse "));
    let secret = folder.path().join("secret");
    std::fs::create_dir(&secret).unwrap();
    let mut init = politesse(&secret);
    init.args(make.unwrap().split(' '));
    done(init).await;
    let create = "\n#   kubectl create secret tls politesse-ca --cert tls.crt --key tls.key\n";
    assert_contains(&head, create);
    assert_valid(folder.path(), manifest.configuration_file()).await;
}
