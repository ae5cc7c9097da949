//! Tables of figures, as text and as HTML.

use std::fmt::Write as _;

use super::html::escape;

/// Rows of cells under named columns. The first column is a name, the others are figures and stand
/// to the right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What the figures are; may be empty.
    pub caption: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(caption: impl Into<String>, columns: &[&str]) -> Self {
        Self {
            caption: caption.into(),
            columns: columns.iter().map(|&name| name.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// When it has not one cell for each column.
    pub fn push(&mut self, row: Vec<String>) {
        assert_eq!(row.len(), self.columns.len(), "one cell for each column");
        self.rows.push(row);
    }

    /// The rows.
    #[must_use]
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// Aligned columns for a terminal.
    #[must_use]
    pub fn to_text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| &row[column]);
            let lens = cells
                .chain([&self.columns[column]])
                .map(|c| c.chars().count());
            lens.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut out = String::new();
        if !self.caption.is_empty() {
            out.push_str(&self.caption);
            out.push('\n');
        }
        for row in std::iter::once(&self.columns).chain(&self.rows) {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                // Writing to a string cannot fail.
                let _ = match column {
                    0 => write!(line, "{cell:<width$}"),
                    _ => write!(line, "  {cell:>width$}"),
                };
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    /// A `table` element.
    #[must_use]
    pub fn to_html(&self) -> String {
        let mut out = String::from("<div class=\"table\"><table>\n");
        if !self.caption.is_empty() {
            let _ = writeln!(out, "<caption>{}</caption>", escape(&self.caption));
        }
        out.push_str("<thead>");
        out.push_str(&row_html("th", &self.columns));
        out.push_str("</thead>\n<tbody>\n");
        for row in &self.rows {
            out.push_str(&row_html("td", row));
            out.push('\n');
        }
        out.push_str("</tbody></table></div>\n");
        out
    }
}

fn row_html(tag: &str, cells: &[String]) -> String {
    let mut out = String::from("<tr>");
    for cell in cells {
        let _ = write!(out, "<{tag}>{}</{tag}>", escape(cell));
    }
    out.push_str("</tr>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new("Rates", &["way", "MB/s"]);
        table.push(vec!["fixed & slow".to_owned(), "9.1".to_owned()]);
        table.push(vec!["ours".to_owned(), "39.8".to_owned()]);
        table
    }

    #[test]
    fn figures_stand_to_the_right_of_their_names() {
        let text = "Rates\nway           MB/s\nfixed & slow   9.1\nours          39.8\n";
        assert_eq!(table().to_text(), text);
    }

    #[test]
    fn html_escapes_what_it_shows() {
        let html = table().to_html();
        assert!(
            html.contains("<td>fixed &amp; slow</td><td>9.1</td>"),
            "{html}"
        );
    }
}
