//! The dashboard as it is served. What it does in a browser is tested there (`tests/browser`).

use crate::support::{Request, Server};

/// The files that the page and its modules name.
fn assets(page: &str) -> Vec<String> {
    let named = page.split('"').filter(|text| text.starts_with("/assets/"));
    let mut files: Vec<String> = named.map(str::to_owned).collect();
    files.extend(["/assets/charts.js", "/assets/locks.js", "/assets/server.js"].map(str::to_owned));
    files
}

#[test]
fn the_page_lets_nothing_else_in() {
    let server = Server::memory();
    let page = server.get("/");
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none';") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    for file in assets(&page.text()) {
        let answer = server.get(&file);
        assert_eq!(answer.status, 200, "{file}");
        let (text, kind) = (answer.text(), answer.header("content-type").unwrap());
        assert!(
            kind.starts_with("text/css") || kind.starts_with("text/javascript"),
            "{file}: {kind}"
        );
        for word in [
            "http://",
            "https://",
            "innerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ] {
            assert!(!text.contains(word), "{file}: {word}");
        }
    }
    let page = page.text();
    for word in ["style=", "onclick", "onload", "http"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn nothing_else_is_there() {
    let server = Server::memory();
    for path in [
        "/assets/",
        "/assets/x.js",
        "/assets/..%2Fmain.js",
        "/assets/main.js/x",
        "//",
    ] {
        server.get(path).problem(404, "no-such-route");
    }
    server.get("/?x=1").invalid(&["x"]);
    let navigation = Request::get("/")
        .header("sec-fetch-site", "cross-site")
        .header("sec-fetch-mode", "navigate");
    assert_eq!(server.call(&navigation).status, 200);
}
