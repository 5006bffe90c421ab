//! `GET /`: the page that shows who holds what, and what it is made of. Its files are in the program; it loads
//! nothing from elsewhere, and its policy lets no other script or style in.

use super::call::Call;
use super::pages::{CSS, HTML};
use super::problem::{Code, Problem};
use super::reply::{PagePolicy, Reply};

/// Its files: their names, types and texts.
pub(super) const ASSETS: [(&str, &str, &str); 9] = [
    ("style.css", CSS, include_str!("../../assets/style.css")),
    ("main.js", SCRIPT, include_str!("../../assets/main.js")),
    ("charts.js", SCRIPT, include_str!("../../assets/charts.js")),
    ("detail.js", SCRIPT, include_str!("../../assets/detail.js")),
    ("elements.js", SCRIPT, include_str!("../../assets/elements.js")),
    ("feed.js", SCRIPT, include_str!("../../assets/feed.js")),
    ("locks.js", SCRIPT, include_str!("../../assets/locks.js")),
    ("server.js", SCRIPT, include_str!("../../assets/server.js")),
    ("table.js", SCRIPT, include_str!("../../assets/table.js")),
];

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// `GET /`.
pub(super) fn get_dashboard(call: &Call<'_>) -> Result<Reply, Problem> {
    call.query(&[])?.finish(Some(()))?;
    let mut page = Reply::page(HTML, include_str!("../../assets/index.html"));
    page.policy = PagePolicy::Dashboard;
    Ok(page)
}

/// `GET /assets/{file}`.
pub(super) fn get_asset(call: &Call<'_>, file: &str) -> Result<Reply, Problem> {
    call.query(&[])?.finish(Some(()))?;
    let known = ASSETS.into_iter().find(|(name, ..)| *name == file);
    let (_, content_type, text) =
        known.ok_or_else(|| Problem::new(Code::NoSuchRoute, "The dashboard has no such file."))?;
    Ok(Reply::page(content_type, text))
}
