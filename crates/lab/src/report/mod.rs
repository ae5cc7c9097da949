//! What a scenario found: a title, tables and plots. Printed as text, and written as one HTML file
//! that needs nothing else.

mod html;
mod plot;
mod table;

pub use html::write as html;
pub use plot::{Axis, Plot, Scale, Series};
pub use table::Table;

/// One scenario's part of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Short: it becomes a heading and an anchor.
    pub title: String,
    /// What was done and what it shows, in paragraphs.
    pub text: Vec<String>,
    /// The figures.
    pub tables: Vec<Table>,
    /// Their pictures.
    pub plots: Vec<Plot>,
}

impl Section {
    /// A section without figures yet.
    #[must_use]
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            text: Vec::new(),
            tables: Vec::new(),
            plots: Vec::new(),
        }
    }

    /// Title, paragraphs and tables for a terminal.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = format!(
            "{}\n{}\n",
            self.title,
            "=".repeat(self.title.chars().count())
        );
        for paragraph in &self.text {
            out.push('\n');
            out.push_str(&wrap(paragraph, TEXT_WIDTH));
        }
        for table in &self.tables {
            out.push('\n');
            out.push_str(&table.to_text());
        }
        out
    }
}

/// Columns of a terminal that paragraphs take.
const TEXT_WIDTH: usize = 96;

/// Breaks a paragraph at blanks.
fn wrap(paragraph: &str, width: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in paragraph.split_whitespace() {
        let len = word.chars().count();
        if column > 0 && column + 1 + len > width {
            out.push('\n');
            column = 0;
        }
        if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += len;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_break_at_blanks_and_keep_their_words() {
        let text = wrap("one two three four", 9);
        assert_eq!(text, "one two\nthree\nfour\n");
        assert_eq!(wrap("  much   space ", 80), "much space\n");
    }

    #[test]
    fn a_section_prints_its_title_its_text_and_its_tables() {
        let mut section = Section::new("Handbrake");
        section.text.push("Why.".to_owned());
        section.tables.push(Table::new("", &["way", "MB/s"]));
        let text = section.to_text();
        assert!(
            text.starts_with("Handbrake\n=========\n\nWhy.\n\n"),
            "{text}"
        );
        assert!(text.contains("MB/s"));
    }
}
