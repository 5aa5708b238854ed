//! Starts that fail because another process holds a port or the record. The messages are
//! ours.

use std::net::TcpListener;

use crate::kit::addresses::free_addresses;
use crate::kit::assert_contains;
use crate::kit::program::isolated;
use crate::kit::proxy::{Config, Place, Proxy};

#[tokio::test]
async fn a_taken_port_is_named_with_a_command_that_works() {
    let taken = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [listen, admin] = taken.each_ref().map(|taken| taken.local_addr().unwrap());
    let config = Config::default()
        .set(&format!("proxy.listen = [\"127.0.0.2:0\", \"{listen}\"]"))
        .set(&format!("admin.listen = \"{admin}\""));
    let place = Place::with(&config);
    let outcome = place.run_code(1, &["serve"]).await;
    outcome.assert_stderr(&[
        &format!("cannot listen on {listen} (proxy.listen): Address already in use"),
        &format!("cannot listen on {admin} (admin.listen): Address already in use"),
    ]);
    let (_, line) = outcome.stderr.split_once("on a free one: ").unwrap();
    let mut command = isolated("sh", place.folder());
    command.args(["-c", &format!("exec {}", line.trim())]);
    let proxy = Proxy::start(place, command).await;
    // The printed command keeps the address that was free.
    assert_contains(&proxy.banner()[0], "127.0.0.2:");
    assert_contains(&proxy.banner()[1], "127.0.0.1:");
    proxy.stop().await;
}

#[tokio::test]
async fn a_second_start_names_the_process_that_holds_the_record() {
    let [listen, admin] = free_addresses();
    let config = Config::default()
        .set(&format!("proxy.listen = \"{listen}\""))
        .set(&format!("admin.listen = \"{admin}\""));
    let proxy = Place::with(&config).start().await;
    let pid = proxy.pid();
    let told = format!(
        "politesse serve, process {pid}, holds this record and listens on {listen}: use it, \
             or stop it with `kill {pid}`"
    );
    let elsewhere = ["proxy.listen=127.0.0.1:0", "admin.listen=127.0.0.1:0"];
    let elsewhere = elsewhere.map(|value| ["--set", value]).concat();
    for arguments in [vec!["serve"], [&elsewhere[..], &["serve"]].concat()] {
        let outcome = proxy.place().run_code(1, &arguments).await;
        outcome.assert_stderr(&[&told]);
    }
}
