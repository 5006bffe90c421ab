//! The pages about problems.

use std::fmt::Write as _;

use super::call::Call;
use super::problem::{Code, Problem};
use super::reply::Reply;

const STYLE: &str = include_str!("pages.css");
/// The type of a style.
pub(super) const CSS: &str = "text/css; charset=utf-8";

/// The type of a page.
pub(super) const HTML: &str = "text/html; charset=utf-8";

/// `GET /problems`: the list of them.
pub(super) fn get_problems(call: &Call<'_>) -> Result<Reply, Problem> {
    call.query(&[])?.finish(Some(()))?;
    let mut rows = String::new();
    for code in Code::ALL {
        let (code, status, title) = (code.as_str(), code.status(), code.title());
        let _ = write!(
            rows,
            "<li><a href=\"/problems/{code}\">{code}</a> <span>{status}</span> {title}</li>"
        );
    }
    Ok(page("Problems", &format!("<h1>Problems</h1><ul>{rows}</ul>")))
}

/// `GET /problems/{code}`: what one means and what to do. `style.css` is the style of these pages.
pub(super) fn get_problem(call: &Call<'_>, code: &str) -> Result<Reply, Problem> {
    call.query(&[])?.finish(Some(()))?;
    if code == "style.css" {
        return Ok(Reply::page(CSS, STYLE));
    }
    let Some(known) = Code::ALL.into_iter().find(|known| known.as_str() == code) else {
        return Err(Problem::new(
            Code::NoSuchRoute,
            "There is no such kind of problem; /problems lists them.",
        ));
    };
    let body = format!(
        "<p><a href=\"/problems\">Problems</a></p><h1>{}</h1><p><code>{}</code> <span>HTTP {}</span></p><p>{}</p>",
        known.title(),
        known.as_str(),
        known.status(),
        known.meaning(),
    );
    Ok(page(known.title(), &body))
}

/// Text as HTML shows it.
pub(super) fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            c => html.push(c),
        }
    }
    html
}

/// A page in the one form that all of them have.
pub(super) fn page(title: &str, body: &str) -> Reply {
    Reply::page(
        HTML,
        format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <title>{title} · ferrolho</title><link rel=\"stylesheet\" href=\"/problems/style.css\"></head>\
             <body><main>{body}</main></body></html>\n"
        ),
    )
}
