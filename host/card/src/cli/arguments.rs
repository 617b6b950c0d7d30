//! The arguments that monitors take.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::Monitor;
use super::socket::{SocketArgument, USUAL_MTU};

/// The name of a socket as monitors take it.
///
/// # Errors
/// When it is one that they do not take.
pub(super) fn plain_name(path: &Path) -> Result<&str> {
    let socket = path
        .to_str()
        .context("the socket's name is no UTF-8: monitors do not take it")?;
    let plain = !socket.contains([',', ' ', '\t', '\n', '\'', '"', '<', '>', '&', '\\', '$']);
    ensure!(
        plain,
        "{socket:?}: choose a socket without spaces, commas and quotes in its name"
    );
    Ok(socket)
}

/// What attaches a machine with so much memory to the card, whose socket has this absolute path.
///
/// # Errors
/// When the socket's name is one that a monitor does not take, or so many queues are.
pub(super) fn text(
    monitor: Monitor,
    path: &Path,
    argument: &SocketArgument,
    memory_mib: u32,
) -> Result<String> {
    let queues = argument.queues;
    let socket = plain_name(path)?;
    // What is left out where there is one pair.
    let several = |text: String| if queues > 1 { text } else { String::new() };
    // What is left out where nobody has said it.
    let with_mac = |before: &str, after: &str| {
        let mac = argument.mac_text();
        mac.map_or(String::new(), |mac| format!("{before}{mac}{after}"))
    };
    let with_mtu = |before: &str, after: &str| match argument.mtu {
        USUAL_MTU => String::new(),
        mtu => format!("{before}{mtu}{after}"),
    };
    Ok(match monitor {
        // Without vectors=0, QEMU 7.2 may crash in emulation (TCG) when Linux uses MSI-X. Without virtio-rng, firmware has no random numbers.
        Monitor::Qemu => format!(
            "-machine q35,memory-backend=ram -object memory-backend-memfd,id=ram,size={memory_mib}M,share=on -m {memory_mib} \
             -chardev socket,id=card,path={socket},reconnect=1 -netdev vhost-user,id=net0,chardev=card{} \
             -device virtio-net-pci,netdev=net0,romfile=,vectors=0,ctrl_guest_offloads=off{}{}{} \
             -device virtio-rng-pci",
            several(format!(",queues={queues}")),
            several(",mq=on".to_owned()),
            with_mac(",mac=", ""),
            with_mtu(",host_mtu=", ""),
        ),
        Monitor::Libvirt => format!(
            "<memory unit='MiB'>{memory_mib}</memory>\n\
             <memoryBacking>\n  <source type='memfd'/>\n  <access mode='shared'/>\n</memoryBacking>\n\
             <interface type='vhostuser'>\n  <source type='unix' path='{socket}' mode='client'>\n    <reconnect enabled='yes' timeout='1'/>\n  </source>\n  \
             <model type='virtio'/>\n{}{}{}</interface>",
            several(format!("  <driver queues='{queues}'/>\n")),
            with_mac("  <mac address='", "'/>\n"),
            with_mtu("  <mtu size='", "'/>\n"),
        ),
        Monitor::CloudHypervisor => {
            // It takes the number of pairs that the card tells for one of queues, and attaches no machine.
            ensure!(
                queues == 1,
                "Cloud Hypervisor attaches a machine by one pair of queues only: it counts queues where a card tells pairs; leave out queues={queues}"
            );
            format!(
                "--memory size={memory_mib}M,shared=on --net vhost_user=true,socket={socket}{}{}",
                with_mac(",mac=", ""),
                with_mtu(",mtu=", ""),
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the card at `path`, `options` behind it.
    fn text_for(monitor: Monitor, path: &str, options: &str) -> Result<String> {
        let argument = format!("card{options}").parse().unwrap();
        text(monitor, Path::new(path), &argument, 512)
    }

    #[test]
    fn each_monitor_shares_memory_of_the_right_size() {
        for (monitor, words) in [
            (
                Monitor::Qemu,
                &[
                    "memory-backend-memfd,id=ram,size=512M,share=on",
                    "-m 512 ",
                    "path=/run/card,",
                    // It would not reach the card.
                    "ctrl_guest_offloads=off",
                    // Without it, ids and ports can be guessed.
                    "-device virtio-rng-pci",
                ][..],
            ),
            (
                Monitor::Libvirt,
                &["'MiB'>512<", "mode='shared'", "path='/run/card'"],
            ),
            (
                Monitor::CloudHypervisor,
                &["size=512M,shared=on", "socket=/run/card"],
            ),
        ] {
            let text = text_for(monitor, "/run/card", "").unwrap();
            for word in words {
                assert!(text.contains(word), "{word} in {text}");
            }
        }
    }

    #[test]
    fn each_monitor_is_told_what_is_not_usual() {
        for (monitor, queues, words) in [
            (
                Monitor::Qemu,
                ",queues=4",
                &[
                    "chardev=card,queues=4 ",
                    ",mq=on,",
                    ",mac=52:54:00:12:34:56,",
                    ",host_mtu=9000 ",
                ][..],
            ),
            (
                Monitor::Libvirt,
                ",queues=4",
                &[
                    "<driver queues='4'/>",
                    "<mac address='52:54:00:12:34:56'/>",
                    "<mtu size='9000'/>",
                ],
            ),
            (
                Monitor::CloudHypervisor,
                "",
                &[",mac=52:54:00:12:34:56", ",mtu=9000"],
            ),
        ] {
            let options = format!("{queues},mac=52:54:00:12:34:56,mtu=9000");
            let (all, plain) = (
                text_for(monitor, "/run/card", &options).unwrap(),
                text_for(monitor, "/run/card", "").unwrap(),
            );
            for word in words {
                assert!(all.contains(word), "{word} in {all}");
                assert!(!plain.contains(word), "{word} in {plain}");
            }
        }
    }

    #[test]
    fn several_pairs_for_a_monitor_that_counts_queues_are_refused() {
        let text = |options| text_for(Monitor::CloudHypervisor, "/run/card", options);
        let error = text(",queues=2").unwrap_err().to_string();
        assert!(error.contains("leave out queues=2"), "{error}");
        assert!(text(",queues=1").is_ok());
    }

    #[test]
    fn names_that_monitors_misread_are_refused() {
        for name in ["/run/a,b", "/run/a b", "/run/'"] {
            assert!(text_for(Monitor::Qemu, name, "").is_err(), "{name}");
        }
    }
}
