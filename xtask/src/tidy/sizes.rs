//! Hard stops on the size of files and functions.

use super::Source;

const FILE_LINES_MAX: usize = 800;
const LIB_LINES_MAX: usize = 200;
const FUNCTION_LINES_MAX: usize = 70;
/// Tests kept in the file they test; more of them go to a file beside it.
const INLINE_TEST_LINES_MAX: usize = 300;

pub fn check(source: &Source, broken: &mut Vec<String>) {
    if !source.is_rust() {
        return;
    }
    let path = &source.path;
    let shipped = source.shipped().count();
    let total = source.text.lines().count();
    let limit = if path.ends_with("src/lib.rs") {
        LIB_LINES_MAX
    } else {
        FILE_LINES_MAX
    };
    if shipped > limit {
        broken.push(format!(
            "{path}: {shipped} lines without tests, over {limit}"
        ));
    }
    if !source.is_test() && total - shipped > INLINE_TEST_LINES_MAX {
        broken.push(format!(
            "{path}: {} lines of tests inside, over {INLINE_TEST_LINES_MAX}: move them to tests.rs",
            total - shipped
        ));
    }
    // A table of cases in a test may be longer.
    for (line, name, len) in functions(&source.text) {
        if line <= shipped && len > FUNCTION_LINES_MAX {
            broken.push(format!(
                "{path}:{line}: fn {name} has {len} lines, over {FUNCTION_LINES_MAX}"
            ));
        }
    }
}

/// Every function of formatted source: its line, name and length, from its `fn` to the brace that
/// closes it at the same indentation.
fn functions(text: &str) -> Vec<(usize, &str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let body = line.trim_start();
        let indent = &line[..line.len() - body.len()];
        let Some(name) = function_name(body) else {
            continue;
        };
        let is_over = |l: &&str| {
            l.strip_prefix(indent).is_some_and(|rest| {
                rest.starts_with('}') || (rest.ends_with(';') && !rest.starts_with(' '))
            })
        };
        if line.ends_with(['}', ';']) {
            continue;
        }
        if let Some(len) = lines[start + 1..].iter().position(is_over) {
            found.push((start + 1, name, len + 2));
        }
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_signature = before.split_whitespace().all(|word| {
        matches!(word, "const" | "async" | "unsafe" | "extern" | "\"C\"") || word.starts_with("pub")
    });
    let name = after.split(['(', '<']).next()?;
    (is_signature && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_measured_to_its_own_brace() {
        let text = "impl X {\n    pub(crate) async fn a(\n        &self,\n    ) {\n        if x {\n        }\n    }\n    fn b();\n}\n";
        assert_eq!(functions(text), [(2, "a", 6)]);
    }

    #[test]
    fn one_line_past_a_limit_is_reported_and_the_limit_is_not() {
        let file = |body: usize| Source {
            path: "crates/x/src/a.rs".into(),
            text: format!("fn a() {{\n{}}}\n", "    x();\n".repeat(body)),
        };
        let count = |source: &Source| {
            let mut broken = Vec::new();
            check(source, &mut broken);
            broken.len()
        };
        assert_eq!(count(&file(FUNCTION_LINES_MAX - 2)), 0);
        assert_eq!(count(&file(FUNCTION_LINES_MAX - 1)), 1);
        assert_eq!(count(&file(FILE_LINES_MAX)), 2);
    }
}
