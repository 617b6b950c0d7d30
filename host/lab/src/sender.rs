//! The sender that a machine measures itself against: the boot server's, which sends datagrams when asked and tells what has come from the
//! machine, and a sink for what the machine's TCP sends.

mod sink;

use std::net::{SocketAddr, UdpSocket};
use std::thread::{JoinHandle, spawn};

use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt};
use wireboot_server::event::Events;
use wireboot_server::interface::Networks;
pub use wireboot_server::ladder::Cable;
pub use wireboot_server::ladder::DATA_PORT;
use wireboot_server::ladder::{LadderServer, PORT, Turns};
use wireboot_server::stop::Stop;

use crate::ip::IpVersion;
use crate::network;

/// A sender at work. It ends with this value.
#[derive(Debug)]
pub struct Sender {
    stop: Stop,
    threads: Vec<JoinHandle<()>>,
}

impl Sender {
    /// Starts it on the lab's network, which must exist and have addresses of this version of IP; the machine's cable ends at the interface `cable`.
    ///
    /// # Errors
    /// When a port is taken.
    pub fn start(ip: IpVersion, cable: &str) -> Result<Self> {
        let server = network::server(ip);
        let at = |port| SocketAddr::new(server, port);
        let cable = Cable::open(cable).context("looking for the machine's cable")?;
        let networks = Networks::from(vec![(server, network::prefix_length(ip))]);
        let ladder = LadderServer::bind(
            at(PORT).into(),
            networks,
            Turns::default(),
            Events::default(),
        );
        let ladder = ladder
            .context("opening the sender's port")?
            .with_cable(cable);
        // What the machine sends to be counted ends here unread. Without a socket the kernel would answer it.
        let unread = UdpSocket::bind(at(DATA_PORT)).context("opening the sender's sink")?;
        setsockopt(&unread, sockopt::RcvBuf, &1).context("making the sink small")?;
        let listener = sink::listen(at(DATA_PORT))?;
        let stop = Stop::default();
        let stopped = stop.clone();
        let sender = spawn(move || {
            let _unread = unread;
            if let Err(error) = ladder.run(&stopped) {
                log::warn!("the sender: {error}");
            }
        });
        let stopped = stop.clone();
        let sink = spawn(move || sink::serve(&listener, &stopped));
        Ok(Self {
            stop,
            threads: vec![sender, sink],
        })
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.stop.set();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
