//! Medians, how far values lie apart, and as many digits of them as that allows.

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

/// A number in so many significant digits: 3373 in two is `3400`, 0.0812 in one is `0.08`.
#[must_use]
pub fn digits(value: f64, significant: usize) -> String {
    let more = significant.saturating_sub(1);
    // Rounded before its places are counted: 9.96 has one behind the point in two digits, its 10 none.
    let rounded: f64 = format!("{value:.more$e}").parse().unwrap_or(value);
    if rounded == 0.0 || !rounded.is_finite() {
        return rounded.to_string();
    }
    let before_point = rounded.abs().log10().floor() as i32 + 1;
    let after_point = usize::try_from(significant as i32 - before_point).unwrap_or(0);
    format!("{rounded:.after_point$}")
}

/// For tables: the median, the lowest, the highest and their number, in as many digits as the spread allows. The median has two, or a third
/// where the values lie closer together than its second can show. The others end at the same place. A single value has two digits, and its
/// number; `-` for no values.
#[must_use]
pub fn shown(values: &[f64]) -> String {
    shown_as(values, |value| value)
}

/// The same of values in another unit, which `of` makes of each: of seconds, say, a rate.
#[must_use]
pub fn shown_as(values: &[f64], of: impl Fn(f64) -> f64) -> String {
    let (Some(middle), Some((one, other))) = (median(values), range(values)) else {
        return String::from("-");
    };
    let (middle, one, other) = (of(middle), of(one), of(other));
    let (low, high) = (one.min(other), one.max(other));
    if values.len() == 1 {
        return format!("{} (1)", digits(middle, 2));
    }
    let second = if middle == 0.0 {
        0
    } else {
        middle.abs().log10().floor() as i32 - 1
    };
    let last = if high - low < 10_f64.powi(second) {
        second - 1
    } else {
        second
    };
    let number = |value| places(value, last);
    format!(
        "{} ({} to {}; {})",
        number(middle),
        number(low),
        number(high),
        values.len()
    )
}

/// A number up to the place of so many powers of ten: 3373 to 2 is `3400`, 0.0812 to -2 is `0.08`.
fn places(value: f64, last: i32) -> String {
    let behind_point = usize::try_from(-last).unwrap_or(0);
    let step = 10_f64.powi(last.max(0));
    let value = if last > 0 {
        (value / step).round() * step
    } else {
        value
    };
    format!("{value:.behind_point$}")
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

    #[test]
    fn numbers_keep_their_significant_digits() {
        for (value, significant, text) in [
            (0.0812, 3, "0.0812"),
            (8.61, 3, "8.61"),
            (123.4, 3, "123"),
            (6504.0, 3, "6500"),
            (3373.0, 2, "3400"),
            (13094.0, 2, "13000"),
            (-0.37, 1, "-0.4"),
            // Rounded up to another place.
            (9.96, 2, "10"),
            (99.6, 2, "100"),
            (0.0996, 2, "0.10"),
            (0.0, 3, "0"),
            (f64::INFINITY, 3, "inf"),
        ] {
            assert_eq!(digits(value, significant), text, "{value}");
        }
    }

    #[test]
    fn digits_are_as_many_as_the_spread_allows() {
        for (values, text) in [
            (&[3373.0][..], "3400 (1)"),
            (&[], "-"),
            (&[3355.0, 3908.0, 3373.0], "3400 (3400 to 3900; 3)"),
            (&[21641.0, 21639.0, 21649.0], "21600 (21600 to 21600; 3)"),
            // The second digit of the median counts tens here: less far apart, and as far.
            (&[112.4, 109.0, 115.0], "112 (109 to 115; 3)"),
            (&[112.4, 109.0, 119.0], "110 (110 to 120; 3)"),
            (&[8.53, 8.5, 8.95], "8.5 (8.5 to 8.9; 3)"),
            // All end at one place, however many digits they have before it.
            (&[9587.0, 9761.0, 13094.0], "9800 (9600 to 13100; 3)"),
            (&[101.0, 95.0, 102.0], "101 (95 to 102; 3)"),
            (&[0.0, 0.0], "0.0 (0.0 to 0.0; 2)"),
            (&[-3.0, 1.0], "-1.0 (-3.0 to 1.0; 2)"),
        ] {
            assert_eq!(shown(values), text);
        }
    }

    #[test]
    fn rates_are_of_the_median_of_times() {
        let rate = |seconds: f64| 12.0 / seconds;
        assert_eq!(
            shown_as(&[1.0, 2.0, 4.0, 4.0], rate),
            "4.0 (3.0 to 12.0; 4)"
        );
        assert_eq!(shown_as(&[0.5], rate), "24 (1)");
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
