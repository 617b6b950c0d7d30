//! The arguments that monitors take.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::Monitor;

/// What attaches a machine with so much memory and so many pairs of queues to the card at `socket`.
///
/// # Errors
/// When the socket's name is one that a monitor does not take.
pub(super) fn text(
    monitor: Monitor,
    socket: &Path,
    queues: usize,
    memory_mib: u32,
) -> Result<String> {
    let socket = socket
        .to_str()
        .context("the socket's name is no UTF-8: monitors do not take it")?;
    let plain = !socket.contains([',', ' ', '\t', '\n', '\'', '"', '<', '>', '&', '\\', '$']);
    ensure!(
        plain,
        "{socket:?}: choose a socket without spaces, commas and quotes in its name"
    );
    // What is left out where there is one pair.
    let several = |text: String| if queues > 1 { text } else { String::new() };
    Ok(match monitor {
        // Without vectors=0, QEMU 7.2 may crash in emulation (TCG) when Linux uses MSI-X. Without virtio-rng, firmware has no random numbers.
        Monitor::Qemu => format!(
            "-machine q35,memory-backend=ram -object memory-backend-memfd,id=ram,size={memory_mib}M,share=on -m {memory_mib} \
             -chardev socket,id=card,path={socket},reconnect=1 -netdev vhost-user,id=net0,chardev=card{} \
             -device virtio-net-pci,netdev=net0,romfile=,vectors=0,ctrl_guest_offloads=off{} \
             -device virtio-rng-pci",
            several(format!(",queues={queues}")),
            several(",mq=on".to_owned()),
        ),
        Monitor::Libvirt => format!(
            "<memory unit='MiB'>{memory_mib}</memory>\n\
             <memoryBacking>\n  <source type='memfd'/>\n  <access mode='shared'/>\n</memoryBacking>\n\
             <interface type='vhostuser'>\n  <source type='unix' path='{socket}' mode='client'>\n    <reconnect enabled='yes' timeout='1'/>\n  </source>\n  \
             <model type='virtio'/>\n{}</interface>",
            several(format!("  <driver queues='{queues}'/>\n")),
        ),
        Monitor::CloudHypervisor => {
            // It counts both queues of a pair, and wants as many processors as pairs.
            let queues_alone = 2 * queues;
            format!(
                "--memory size={memory_mib}M,shared=on --net vhost_user=true,socket={socket}{}",
                several(format!(",num_queues={queues_alone} --cpus boot={queues}")),
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let text = text(monitor, Path::new("/run/card"), 1, 512).unwrap();
            for word in words {
                assert!(text.contains(word), "{word} in {text}");
            }
        }
    }

    #[test]
    fn each_monitor_is_told_of_several_pairs_alone() {
        for (monitor, words) in [
            (Monitor::Qemu, &["chardev=card,queues=4 ", ",mq=on "][..]),
            (Monitor::Libvirt, &["<driver queues='4'/>"]),
            (Monitor::CloudHypervisor, &["num_queues=8", "boot=4"]),
        ] {
            let text = |queues| text(monitor, Path::new("/run/card"), queues, 512).unwrap();
            for word in words {
                assert!(text(4).contains(word), "{word} in {}", text(4));
                assert!(!text(1).contains(word), "{word} in {}", text(1));
            }
        }
    }

    #[test]
    fn names_that_monitors_misread_are_refused() {
        for name in ["/run/a,b", "/run/a b", "/run/'"] {
            assert!(text(Monitor::Qemu, Path::new(name), 1, 512).is_err());
        }
    }
}
