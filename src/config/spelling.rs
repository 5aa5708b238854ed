//! The name that was probably meant by a misspelled one.

/// The one of `known` that was probably meant by `unknown`: spelled nearly so,
/// or spelled so after the last dot, in another section.
pub(super) fn nearest(known: impl Iterator<Item = String>, unknown: &str) -> Option<String> {
    let known: Vec<String> = known.collect();
    let close = known
        .iter()
        .map(|name| (distance(name, unknown), name))
        .filter(|(distance, name)| *distance <= 3 && distance * 3 <= name.len())
        .min();
    let elsewhere = || known.iter().find(|name| last(name) == last(unknown));
    close.map(|(_, name)| name).or_else(elsewhere).cloned()
}

/// What stands after the last dot.
fn last(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, last)| last)
}

/// How many letters must be put in, taken out or changed to make `one` of
/// `other` (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (index, left) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, right) in other.chars().enumerate() {
            let change = diagonal + usize::from(left != right);
            diagonal = row[column + 1];
            row[column + 1] = change.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! distances {
        ($($name:ident: $one:literal to $other:literal is $distance:literal;)+) => {$(
            #[test]
            fn $name() {
                assert_eq!(distance($one, $other), $distance);
                assert_eq!(distance($other, $one), $distance);
            }
        )+};
    }

    // Ours.
    distances! {
        the_same_is_no_distance: "listen" to "listen" is 0;
        a_letter_more_is_one: "listen" to "lissten" is 1;
        another_letter_is_one: "listen" to "listan" is 1;
        two_letters_swapped_are_two: "listen" to "litsen" is 2;
        nothing_is_as_far_as_the_word_is_long: "" to "listen" is 6;
        letters_are_counted_not_bytes: "ü" to "u" is 1;
    }

    #[test]
    fn a_name_unlike_all_is_near_none() {
        let known = ["proxy.listen", "log.level"].map(str::to_owned);
        assert_eq!(nearest(known.into_iter(), "egress.dony"), None);
    }
}
