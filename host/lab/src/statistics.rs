//! Medians and spread.

/// The middle of `values`: the mean of the two middle ones where their number is even. `None` for no values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *sorted.get(sorted.len() / 2 - 1)?;
    Some(f64::midpoint(lower, upper))
}

/// The smallest and the largest of `values`. `None` for no values.
#[must_use]
pub fn range(values: &[f64]) -> Option<(f64, f64)> {
    let first = *values.first()?;
    Some(values.iter().fold((first, first), |(low, high), &value| {
        (low.min(value), high.max(value))
    }))
}

/// For tables: the median, and the lowest, the highest and their number where there are several; `-` for no values. `digits` writes one.
pub fn spread(values: &[f64], digits: impl Fn(f64) -> String) -> String {
    match (median(values), range(values)) {
        (Some(middle), Some((low, high))) if values.len() > 1 => format!(
            "{} ({} to {}; {})",
            digits(middle),
            digits(low),
            digits(high),
            values.len()
        ),
        (Some(middle), _) => digits(middle),
        _ => String::from("-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0]), Some(5.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
    }

    #[test]
    fn ranges() {
        assert_eq!(range(&[]), None);
        assert_eq!(range(&[2.0, 9.0, 1.0]), Some((1.0, 9.0)));
    }

    #[test]
    fn a_spread_is_of_several() {
        let digits = |value| format!("{value:.1}");
        assert_eq!(spread(&[], digits), "-");
        assert_eq!(spread(&[3.0], digits), "3.0");
        assert_eq!(spread(&[9.0, 1.0, 2.25], digits), "2.2 (1.0 to 9.0; 3)");
    }

    proptest! {
        #[test]
        fn half_of_the_values_lie_on_either_side(values in prop::collection::vec(0.0..1e6f64, 1..40)) {
            let middle = median(&values).unwrap();
            let below = values.iter().filter(|&&value| value < middle).count();
            let above = values.iter().filter(|&&value| value > middle).count();
            prop_assert!(below <= values.len() / 2 && above <= values.len() / 2);
        }
    }
}
