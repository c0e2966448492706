//! A private nats-server with JetStream.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::janitor::Janitor;
use super::{START_LIMIT, Server, free_port, spawn};
use crate::process;

/// How long the server's greeting is waited for, once it has accepted.
const GREETING_LIMIT: Duration = Duration::from_secs(5);

const LOG: &str = "nats.log";

pub(crate) fn find() -> Option<PathBuf> {
    process::find_program("nats-server")
}

/// Starts the server and waits until it greets.
pub(crate) fn start(program: &Path, janitor: &mut Janitor) -> Result<Server> {
    let port = free_port()?;
    let config = janitor.folder().join("nats.conf");
    fs::write(&config, configuration(port, janitor.folder()))?;
    let mut command = Command::new(program);
    command.arg("-js").arg("-c").arg(&config);
    let mut child = spawn(&mut command, LOG, janitor)?;

    let address = format!("127.0.0.1:{port}");
    let ready = process::wait_until(START_LIMIT, || {
        if let Some(status) = child.try_wait()? {
            bail!("nats-server ended with {status}");
        }
        Ok(info(&address).is_ok())
    });
    match ready {
        Ok(true) => Ok(Server {
            variable: "PUNCTUAL_TEST_NATS_URL",
            url: format!("nats://{address}"),
            child,
        }),
        Ok(false) => bail!("nats-server did not answer in time:\n{}", said(janitor)),
        Err(error) => {
            Err(error.context(format!("failed to start nats-server:\n{}", said(janitor))))
        }
    }
}

/// The server's description of itself, sent to every client that connects.
pub(crate) fn info(address: &str) -> Result<Value> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(GREETING_LIMIT))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let json = line
        .strip_prefix("INFO ")
        .context("failed to recognise nats-server's greeting")?;
    Ok(serde_json::from_str(json)?)
}

fn configuration(port: u16, folder: &Path) -> String {
    format!(
        "host: \"127.0.0.1\"\nport: {port}\nmax_payload: 8MB\njetstream {{ store_dir: \"{}\" }}\n",
        folder.join("jetstream").display()
    )
}

fn said(janitor: &Janitor) -> String {
    process::tail(&janitor.folder().join(LOG), 10)
}
