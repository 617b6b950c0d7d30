//! Writer, borrower and reader: every interleaving.

use super::*;
use alloc::vec;
use loom::cell::UnsafeCell;
use loom::thread;

fn block() -> HeapBlock {
    vec![0; 4].into()
}

/// Fills the block, two bytes at a time.
fn fill(writer: &mut PrefixWriter<HeapBlock>) {
    for at in (0..writer.len()).step_by(2) {
        writer.rest_mut(at)[..2].fill(at as u8 + 1);
        writer.commit(at + 2);
    }
}

#[test]
fn in_every_order_only_what_is_there_is_seen() {
    loom::model(|| {
        let (mut writer, reader) = prefix(block());
        let thread = thread::spawn(move || fill(&mut writer));
        for _ in 0..2 {
            let bytes = reader.committed(0);
            let want: &[u8] = &[1, 1, 3, 3];
            assert!(bytes.len() % 2 == 0 && want.starts_with(bytes));
        }
        thread.join().unwrap();
    });
}

#[test]
fn a_lent_range_is_seen_whole_once_it_is_back() {
    struct Cell(UnsafeCell<u8>);
    // SAFETY: the test touches it only where the block's own rules let it touch the range.
    unsafe impl Sync for Cell {}
    // SAFETY: as above.
    unsafe impl Send for Cell {}
    loom::model(|| {
        let (mut writer, reader) = prefix(block());
        // Stands for the range's bytes, whose accesses through slices loom does not see.
        let cell = Arc::new(Cell(UnsafeCell::new(0)));
        let mut part = writer.lend(2..4).unwrap();
        let theirs = cell.clone();
        let borrower = thread::spawn(move || {
            part.rest_mut(0).fill(7);
            // SAFETY: the part is held.
            theirs.0.with_mut(|byte| unsafe { *byte = 7 });
            drop(part);
        });
        let seen = cell.clone();
        let checker = thread::spawn(move || {
            let bytes = reader.committed(0);
            if bytes.len() > 2 {
                assert_eq!(bytes, [1, 1, 7, 7]);
                // SAFETY: committed, so nobody writes it any more.
                seen.0.with(|byte| assert_eq!(unsafe { *byte }, 7));
            }
        });
        writer.rest_mut(0)[..2].fill(1);
        for _ in 0..2 {
            writer.commit(4);
            if writer.rest_mut(2).len() == 2 || writer.rest(0).len() == 4 {
                // SAFETY: the range is back, and read only from now on.
                cell.0.with(|byte| assert_eq!(unsafe { *byte }, 7));
                assert_eq!(writer.rest(0), [1, 1, 7, 7]);
            }
        }
        borrower.join().unwrap();
        writer.commit(4);
        assert_eq!(writer.rest(0), [1, 1, 7, 7]);
        checker.join().unwrap();
    });
}
