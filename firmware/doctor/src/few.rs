//! Order among few things.

/// Sorts in time that grows with the square of the number of things; equals stay in their order. The library's sorts, made for many, are 5 kB
/// of code for each type.
pub(crate) fn sort<T>(things: &mut [T], before: impl Fn(&T, &T) -> bool) {
    for end in 1..things.len() {
        for at in (1..=end).rev() {
            match things.get_mut(at - 1..=at) {
                Some([one, other]) if before(other, one) => core::mem::swap(one, other),
                _ => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn equals_stay_in_their_order() {
        let mut things = [(2, 'a'), (1, 'b'), (2, 'c'), (0, 'd'), (1, 'e')];
        super::sort(&mut things, |one, other| one.0 < other.0);
        let wanted = [(0, 'd'), (1, 'b'), (1, 'e'), (2, 'a'), (2, 'c')];
        assert_eq!(things, wanted);
        super::sort::<u8>(&mut [], |_, _| true);
    }
}
