//! Two stations on a simulated wire: one sends back what comes to its UDP port 7, the other asks it.
//!
//!     cargo run -p wireboot-net --example echo
//!
//! An engine owns a NIC. Whoever has the processor calls [`Engine::poll`]; here that is a loop on simulated time, in firmware it is a
//! processor. Protocols are async functions over [`Stack`], the engine's network; they run within `poll`.

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use wireboot_net::{Engine, Instant, Ipv4Cidr, Ipv4Config, Stack};
use wireboot_nic::sim::{LinkConfig, link};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// Echo (RFC 862).
const PORT: u16 = 7;

fn main() {
    // A gigabit link that loses nothing; the seed is that of its dice.
    let (server, client) = link(LinkConfig::default(), LinkConfig::default(), 1);
    let clock = server.clock();
    // The seeds are those of ports and sequence numbers. A real program takes them from the best randomness that it has.
    let mut server = Engine::new(server, [1; 32]);
    let mut client = Engine::new(client, [2; 32]);
    configure(&server.stack(), SERVER);
    configure(&client.stack(), CLIENT);

    server.spawn(echo(server.stack()));
    let done = Rc::new(Cell::new(false));
    let (stack, told) = (client.stack(), done.clone());
    client.spawn(async move {
        ask(stack).await;
        told.set(true);
    });

    while !done.get() {
        let now = Instant::from_micros(clock.now());
        server.poll(now).expect("a simulated NIC does not fail");
        client.poll(now).expect("a simulated NIC does not fail");
        clock.advance(10);
    }
}

fn configure(stack: &Stack, address: Ipv4Addr) {
    stack.configure(&Ipv4Config {
        address: Ipv4Cidr::new(address, 24),
        router: None,
        routes: Vec::new(),
        mtu: None,
    });
}

async fn echo(stack: Stack) {
    let socket = stack.udp_on(PORT);
    loop {
        let (sender, payload) = socket.receive().await;
        socket
            .send_to(sender, &payload)
            .expect("the sender is on the link");
    }
}

async fn ask(stack: Stack) {
    let socket = stack.udp();
    let begin = stack.now();
    socket
        .send_to(SocketAddr::from((SERVER, PORT)), b"hello")
        .expect("the server is on the link");
    let (from, payload) = socket.receive().await;
    println!(
        "{from} answers {:?} after {} us, ARP included",
        String::from_utf8_lossy(&payload),
        (stack.now() - begin).total_micros()
    );
}
