//! Runs the proxy from a Rust program until Ctrl-C.
//!
//! `cargo run --example embed`

#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::error::Error;

use politesse::config::{Config, ConfigSources};
use politesse::serve;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let overrides = [
        r#"proxy.listen=["127.0.0.1:0"]"#,
        r#"admin.listen="127.0.0.1:0""#,
    ]
    .map(str::to_owned);
    let config = Config::read(&ConfigSources {
        file: None,
        environment: Vec::new(),
        overrides: &overrides,
        working_directory: std::env::temp_dir().join("politesse-embed"),
        data_directory: None,
    })?;
    let running = serve::start(config.settings()).await?;
    println!("point a crawler at http://{}", running.listen[0]);
    tokio::signal::ctrl_c().await?;
    running.stop(std::future::pending()).await;
    Ok(())
}
