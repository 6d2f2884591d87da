//! Golden files.

use testkit::{golden, golden_compare};

#[test]
fn an_equal_text_passes() {
    golden("tests/golden/sample.txt", "one\ntwo\nthree\n");
}

#[test]
fn a_difference_is_shown_as_lines_with_the_way_to_accept_it() {
    let error = golden_compare("tests/golden/sample.txt".as_ref(), "one\n2\nthree\n").unwrap_err();
    let message = error.to_string();
    for part in ["sample.txt", "-two\n", "+2\n", " one\n", "UPDATE_GOLDEN=1"] {
        assert!(message.contains(part), "{part:?} is missing in:\n{message}");
    }
}

#[test]
fn a_missing_file_shows_the_text() {
    let error = golden_compare("tests/golden/absent.txt".as_ref(), "new text\n").unwrap_err();
    assert!(error.to_string().contains("new text"), "{error}");
}
