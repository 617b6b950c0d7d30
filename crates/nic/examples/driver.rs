//! A driver over the model of its device: what a test, a fuzzer or a new driver begins with.
//!
//!     cargo run -p wireboot-nic --features testing --example driver
//!
//! The model is a virtio-net card made of software behind the traits of `platform`: configuration space, registers, DMA memory. In
//! firmware the same driver runs over the same traits, implemented by UEFI's PCI I/O protocol.

use wireboot_nic::model::{Model, ModelConfig, UnitHeader};
use wireboot_nic::virtio::VirtioNet;
use wireboot_nic::{Nic, Offload, Receive, Transmit};

fn main() {
    let card = Model::new(ModelConfig::default());
    let mut nic = VirtioNet::new(card.pci()).expect("the driver starts the card");
    let properties = nic.properties();
    println!(
        "MTU {}, room for {} frames, units of up to {} bytes",
        properties.mtu, properties.receive_frames, properties.max_receive
    );

    // The card writes a frame to a buffer of the driver's. The driver lends it to the closure, then gives the buffer back.
    card.deliver(UnitHeader::default(), &[0xab; 60]);
    let received = nic
        .split()
        .0
        .burst(64, |frame| println!("received {} bytes", frame.len))
        .expect("the card keeps its contract");
    println!("{received} frame in the burst");

    // The driver lends memory of its transmit ring to be filled. The card sees it after the doorbell.
    let (_, mut transmit) = nic.split();
    transmit
        .send(60, Offload::None, &mut |frame| frame.fill(0xcd))
        .expect("the ring has room");
    transmit.flush().expect("the card keeps its contract");
    println!("the card sent {} frame", card.collect().len());
}
