//! One HTML file with everything in it: style, tables, pictures. No script, nothing fetched.

use std::fmt::Write as _;

use super::Section;

/// `text` as it may stand in an element or a quoted attribute.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => out.push(other),
        }
    }
    out
}

/// The name of a section in links.
fn anchor(title: &str) -> String {
    let keep = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    title.chars().map(keep).collect()
}

/// The page. `machine` says where and when the figures were made.
#[must_use]
pub fn write(title: &str, machine: &str, sections: &[Section]) -> String {
    let title = escape(title);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>{STYLE}</style></head>\n<body><main>\n<h1>{title}</h1>\n\
         <p class=\"machine\">{}</p>\n",
        escape(machine)
    );
    if sections.len() > 1 {
        out.push_str("<nav><ul>");
        for section in sections {
            let (id, name) = (anchor(&section.title), escape(&section.title));
            let _ = write!(out, "<li><a href=\"#{id}\">{name}</a></li>");
        }
        out.push_str("</ul></nav>\n");
    }
    for section in sections {
        let (id, name) = (anchor(&section.title), escape(&section.title));
        let _ = writeln!(out, "<section id=\"{id}\"><h2>{name}</h2>");
        for paragraph in &section.text {
            let _ = writeln!(out, "<p>{}</p>", escape(paragraph));
        }
        for plot in &section.plots {
            out.push_str(&plot.to_html());
        }
        for table in &section.tables {
            out.push_str(&table.to_html());
        }
        out.push_str("</section>\n");
    }
    out.push_str("</main></body></html>\n");
    out
}

/// Colours of the lines are told apart by people who see colours differently (after Okabe and
/// Ito), and have enough contrast on both backgrounds.
const STYLE: &str = "
:root{--bg:#fff;--fg:#1d2329;--dim:#5d6772;--rule:#d8dde2;--card:#f6f8fa;
--c0:#0072b2;--c1:#d55e00;--c2:#008f68;--c3:#b0578d;--c4:#9a7200;--c5:#3a8fc0;--c6:#555;--c7:#a02020}
@media (prefers-color-scheme:dark){:root{--bg:#14181c;--fg:#e4e8ec;--dim:#9aa5b0;--rule:#343c44;--card:#1c2228;
--c0:#56b4e9;--c1:#ff9a4d;--c2:#2fd0a0;--c3:#e29ac4;--c4:#f0c840;--c5:#8ecbf0;--c6:#bbb;--c7:#ff7a7a}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}
main{max-width:56rem;margin:0 auto;padding:1.5rem 1rem 4rem}
h1{font-size:1.7rem;line-height:1.2;margin:0 0 .25rem}
h2{font-size:1.25rem;margin:2.5rem 0 .5rem;padding-top:1rem;border-top:1px solid var(--rule)}
.machine,figcaption,caption{color:var(--dim);font-size:.9rem}
nav ul,.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;padding:0;margin:.5rem 0}
a{color:var(--c0)}
figure{margin:1rem 0;padding:.75rem 1rem;background:var(--card);border:1px solid var(--rule);border-radius:8px}
figcaption{font-weight:600;color:var(--fg)}
svg{width:100%;height:auto;display:block}
svg text{fill:var(--dim);font-size:12px}
.label{font-size:13px}
.end{text-anchor:end}.mid{text-anchor:middle}
.grid{stroke:var(--rule);fill:none}.axis{stroke:var(--dim);fill:none}
.line{fill:none;stroke-width:2;stroke-linejoin:round}
.legend li{display:flex;align-items:center;gap:.4rem;font-size:.9rem}
.legend span{width:1.1rem;height:.25rem;border-radius:2px}
.l0{stroke:var(--c0)}.l1{stroke:var(--c1)}.l2{stroke:var(--c2)}.l3{stroke:var(--c3)}
.l4{stroke:var(--c4)}.l5{stroke:var(--c5)}.l6{stroke:var(--c6)}.l7{stroke:var(--c7)}
.f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}
.f4{fill:var(--c4)}.f5{fill:var(--c5)}.f6{fill:var(--c6)}.f7{fill:var(--c7)}
.b0{background:var(--c0)}.b1{background:var(--c1)}.b2{background:var(--c2)}.b3{background:var(--c3)}
.b4{background:var(--c4)}.b5{background:var(--c5)}.b6{background:var(--c6)}.b7{background:var(--c7)}
.table{overflow-x:auto;margin:1rem 0}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.92rem}
caption{text-align:left;padding:.25rem 0}
th,td{padding:.3rem .6rem;border-bottom:1px solid var(--rule);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}
thead th{color:var(--dim);font-weight:600;border-bottom:2px solid var(--rule)}
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Axis, Plot, Series, Table};

    fn page() -> String {
        let mut section = Section::new("Windows & RTT");
        section.text.push("a < b".to_owned());
        section.tables.push(Table::new("", &["x"]));
        section.plots.push(Plot {
            title: "p".to_owned(),
            x: Axis::linear("s"),
            y: Axis::linear("MB/s"),
            series: vec![Series {
                name: "ours".to_owned(),
                points: vec![(0.0, 1.0), (1.0, 2.0)],
            }],
        });
        write("Lab", "2 cores", &[section, Section::new("Other")])
    }

    #[test]
    fn the_page_is_whole_and_fetches_nothing() {
        let page = page();
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        for outside in ["http://", "https://", "<script", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn every_element_that_opens_closes() {
        let page = page();
        for tag in [
            "section", "figure", "svg", "table", "ul", "main", "body", "html", "p",
        ] {
            let opened = page.matches(&format!("<{tag}>")).count()
                + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn titles_are_escaped_and_linked() {
        let page = page();
        assert!(page.contains("<h2>Windows &amp; RTT</h2>"));
        assert!(page.contains("href=\"#windows---rtt\"") && page.contains("id=\"windows---rtt\""));
        assert!(page.contains("<p>a &lt; b</p>"));
    }
}
