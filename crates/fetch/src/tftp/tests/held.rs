//! Files that are longer than the memory for them: the server is kept waiting while the receiver is slow.

use super::*;
use crate::memory_window::{Window, WindowReader};
use wireboot_ring::{HeapBlock, prefix};

const PIECE: usize = 16 * 1024;
/// Memory for a file at most.
const MOST: u64 = 8 * PIECE as u64;

/// A receiver that reads so fast as it can, but for pauses.
#[derive(Clone)]
struct Reader {
    window: Rc<RefCell<WindowReader<HeapBlock>>>,
    read: Rc<RefCell<Vec<u8>>>,
    windows: Rc<Cell<usize>>,
    /// Says how long the file is.
    sized: bool,
}

impl Reader {
    /// `pauses`: how long to pause once so many bytes were read.
    fn on(client: &mut Engine<SimNic>, sized: bool, pauses: Vec<(usize, u64)>) -> Self {
        let (_, window) = WindowReader::new(0);
        let reader = Self {
            window: Rc::new(RefCell::new(window)),
            read: Rc::default(),
            windows: Rc::default(),
            sized,
        };
        let (stack, this) = (client.stack(), reader.clone());
        client.spawn(async move {
            let mut pauses = pauses.into_iter().peekable();
            loop {
                if this.windows.get() > 0 {
                    this.read();
                }
                let len = this.read.borrow().len();
                if let Some((_, millis)) = pauses.next_if(|(at, _)| len >= *at) {
                    stack.sleep(Duration::from_millis(millis)).await;
                }
                stack.next_turn().await;
            }
        });
        reader
    }

    fn read(&self) {
        let mut window = self.window.borrow_mut();
        while window.end() < window.released() + MOST {
            window.give(prefix(HeapBlock::in_pieces(&[0; PIECE], 5000)));
        }
        let mut bytes = vec![0; 3000];
        let count = window.read(0, &mut bytes);
        self.read.borrow_mut().extend(&bytes[..count]);
        window.release(count);
    }

    fn rest(&self) -> Vec<u8> {
        while self.window.borrow_mut().ready() > 0 {
            self.read();
        }
        self.read.borrow().clone()
    }
}

impl Destination for Reader {
    async fn memory(
        &mut self,
        bytes: u64,
        previous: Option<(Memory, u64)>,
    ) -> Result<Memory, DestinationError> {
        assert!(
            previous.is_none(),
            "there is never more room than the first"
        );
        self.windows.set(self.windows.get() + 1);
        let len = if self.sized {
            bytes as usize
        } else {
            usize::MAX
        };
        let window: Window = self.window.borrow_mut().renew(len);
        Ok(Memory::new(window))
    }

    fn progress(&mut self, received: u64, _: Option<u64>) {
        assert!(received <= self.window.borrow().end());
    }
}

fn held(script: &TftpServerScript, wire: LinkConfig, pauses: Vec<(usize, u64)>) -> Fetched<Reader> {
    let sized = script.announces_size;
    fetch_into(
        script,
        wire,
        7,
        0,
        |_| {},
        |client| Reader::on(client, sized, pauses),
    )
}

fn scripts() -> impl Iterator<Item = TftpServerScript> {
    [(true, false), (false, false), (true, true), (false, true)]
        .into_iter()
        .map(|(announces_size, slides)| TftpServerScript {
            announces_size,
            slides,
            window_limit: 16,
            ..TftpServerScript::default()
        })
}

#[test]
fn a_long_file_comes_through_little_memory() {
    for script in scripts() {
        // Shorter than the server's patience, which sends nothing twice then.
        let pauses = vec![(100_000, 200), (500_000, 250)];
        let (result, reader, log, _) = held(&script, LinkConfig::default(), pauses);
        assert_eq!(result.unwrap().len, script.file.len() as u64);
        assert!(reader.rest() == script.file);
        assert_eq!((log.borrow().requests, reader.windows.get()), (1, 1));
        let blocks = script.file.len() as u64 / 1468 + 1;
        assert_eq!(log.borrow().data, blocks);
    }
}

/// A server sends a window again, and again, while the receiver pauses: it is acknowledged when there is room, and no longer waited for than
/// one that has fallen silent.
#[test]
fn a_server_that_waits_goes_on_where_it_was() {
    for script in scripts() {
        let pauses = vec![(100_000, 3000)];
        let (result, reader, log, _) = held(&script, LinkConfig::default(), pauses);
        assert_eq!(result.unwrap().len, script.file.len() as u64);
        assert!(reader.rest() == script.file);
        assert_eq!(log.borrow().requests, 1);
    }
}

/// This one gives up after 6 s.
#[test]
fn a_server_that_gives_up_meanwhile_is_asked_again_up_to_the_byte() {
    for script in scripts() {
        let pauses = vec![
            (100_000, 20_000),
            (600_000, 20_000),
            (900_000, 20_000),
            (1_000_000, 20_000),
        ];
        let (result, reader, log, _) = held(&script, LinkConfig::default(), pauses);
        assert_eq!(result.unwrap().len, script.file.len() as u64);
        assert!(reader.rest() == script.file);
        assert_eq!(reader.windows.get(), 5, "as many as it takes");
        assert_eq!(log.borrow().requests, 5);
    }
}

#[test]
fn what_the_wire_loses_comes_again_through_little_memory() {
    for script in scripts() {
        let pauses = vec![(100_000, 400), (500_000, 10_000)];
        let (result, reader, ..) = held(&script, lossy(0.02), pauses);
        assert_eq!(result.unwrap().len, script.file.len() as u64);
        assert!(reader.rest() == script.file);
    }
}

#[test]
fn a_wrong_size_is_an_error_however_little_memory_there_is() {
    for size in [1_199_999, 1_200_001, 5000] {
        let script = TftpServerScript {
            announced_size: Some(size),
            window_limit: 16,
            ..TftpServerScript::default()
        };
        let (result, ..) = held(&script, LinkConfig::default(), vec![(100_000, 400)]);
        assert!(
            matches!(result, Err(TftpError::WrongSize { announced, .. }) if announced == size),
            "{size}: {result:?}"
        );
    }
}
