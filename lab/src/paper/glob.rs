// SPDX-License-Identifier: Apache-2.0
//! Globs over the names of cells: `*` is any run of characters, `?` is one. Slashes are characters like others.

/// Whether the whole of `text` fits.
fn fits(glob: &str, text: &str) -> bool {
    let (glob, text) = (glob.as_bytes(), text.as_bytes());
    let (mut at, mut seen) = (0, 0);
    // where the last star stands, and up to where it has swallowed
    let mut star: Option<(usize, usize)> = None;
    while let Some(&byte) = text.get(seen) {
        match glob.get(at) {
            Some(b'*') => {
                star = Some((at, seen));
                at += 1;
            }
            Some(&wanted) if wanted == b'?' || wanted == byte => {
                at += 1;
                seen += 1;
            }
            _ => {
                let Some((back, swallowed)) = star else { return false };
                star = Some((back, swallowed + 1));
                at = back + 1;
                seen = swallowed + 1;
            }
        }
    }
    glob.iter().skip(at).all(|&byte| byte == b'*')
}

/// Whether a cell is asked for: the glob fits its full name, or that of its case or a folder above it.
pub(super) fn selects(glob: &str, cell: &str) -> bool {
    fits(glob, cell)
        || cell
            .match_indices('/')
            .any(|(slash, _)| cell.get(..slash).is_some_and(|folder| fits(glob, folder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_swallow_any_run_and_question_marks_one_character() {
        for (glob, text, wanted) in [
            ("overload/*", "overload/c/100/l4s-delay-mean", true),
            ("*/l4s-delay-*", "overload/c/100/l4s-delay-mean", true),
            ("*delay*p99", "overload/c/100/l4s-delay-p99", true),
            ("*delay*p99", "overload/c/100/l4s-delay-p99-max", false),
            ("overload/?/100/*", "overload/c/100/x", true),
            ("overload/?/100/*", "overload/cc/100/x", false),
            ("", "", true),
            ("**", "", true),
            ("?", "", false),
            ("a*b*c", "a-b-b-c-c", true),
            ("a*b*c", "a-b-b-c-d", false),
            ("overload", "overload/c", false),
        ] {
            assert_eq!(fits(glob, text), wanted, "{glob} {text}");
        }
    }

    #[test]
    fn a_case_or_a_folder_selects_its_cells() {
        assert!(selects("overload", "overload/c/100/l4s-delay-mean"));
        assert!(selects("overload/c/100", "overload/c/100/l4s-delay-mean"));
        assert!(selects("overload/*/100", "overload/c/100/l4s-delay-mean"));
        assert!(!selects("overload/c/10", "overload/c/100/l4s-delay-mean"));
    }
}
