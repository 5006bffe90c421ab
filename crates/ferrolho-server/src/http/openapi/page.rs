//! The page, written from the same table as the document.

use std::fmt::Write as _;

use serde_json::Value;

use super::document::problems;
use super::operations::{ALL, Answer, Operation};
use super::schemas;
use crate::http::pages::escape;

/// The page's content.
pub(super) fn page() -> String {
    let schemas = schemas::all();
    let mut html = String::from(
        "<h1>API</h1><p>Plain HTTP and JSON. Every error is a <a href=\"/problems\">problem</a>. For programs: \
         <a href=\"/openapi.json\">openapi.json</a>.</p>",
    );
    let mut group = "";
    for operation in ALL {
        if operation.group != group {
            group = operation.group;
            let _ = write!(html, "<h2>{}</h2>", escape(group));
        }
        write_operation(&mut html, operation, &schemas);
    }
    html.push_str("<h2>Bodies</h2>");
    for (name, schema) in schemas.as_object().into_iter().flatten() {
        let _ = write!(html, "<section><h3 id=\"{name}\"><code>{name}</code></h3>");
        write_schema(&mut html, schema);
        html.push_str("</section>");
    }
    html
}

fn write_operation(html: &mut String, operation: &Operation, schemas: &Value) {
    let method = operation.method.to_uppercase();
    let _ = write!(
        html,
        "<section id=\"{id}\"><h3>{summary}</h3><p><code>{method} {path}</code></p><p>{text}</p>",
        id = operation.id,
        summary = escape(operation.summary),
        path = escape(operation.endpoint.template()),
        text = with_code(operation.description),
    );
    if !operation.parameters.is_empty() {
        html.push_str("<table><tr><th>Parameter</th><th>Where</th><th></th></tr>");
        for parameter in operation.parameters {
            let parameter = schemas::parameter(*parameter);
            let cell = |name: &str| parameter[name].as_str().unwrap_or_default().to_owned();
            let _ = write!(
                html,
                "<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
                escape(&cell("name")),
                escape(&cell("in")),
                with_code(&cell("description"))
            );
        }
        html.push_str("</table>");
    }
    if let Some(body) = operation.body {
        let _ = write!(html, "<p>Body: {}</p>", link(body));
        write_schema(html, &schemas[body]);
    }
    let answer = match operation.answer {
        Answer::Nothing => "204".to_owned(),
        Answer::Text(content_type) => format!("200 <code>{content_type}</code>"),
        Answer::Json(schema) => format!("200 {}", link(schema)),
    };
    let _ = write!(html, "<p>Answer: {answer}</p><p>Problems:");
    for (status, codes) in problems(operation) {
        for code in codes {
            let code = code.as_str();
            let _ = write!(html, " <a href=\"/problems/{code}\">{status} {code}</a>");
        }
    }
    html.push_str("</p></section>");
}

/// The members of an object, or what it may be instead.
fn write_schema(html: &mut String, schema: &Value) {
    let choices = schema["oneOf"].as_array();
    if let Some(choices) = choices {
        for choice in choices {
            write_schema(html, choice);
        }
        return;
    }
    let Some(members) = schema["properties"].as_object() else {
        return;
    };
    html.push_str("<table><tr><th>Member</th><th>Type</th><th></th></tr>");
    for (name, member) in members {
        let is_required = schema["required"]
            .as_array()
            .is_some_and(|required| required.iter().any(|r| r == name));
        let _ = write!(
            html,
            "<tr><td><code>{}</code>{}</td><td>{}</td><td>{}</td></tr>",
            escape(name),
            if is_required { "" } else { " <span>optional</span>" },
            kind(member),
            with_code(member["description"].as_str().unwrap_or_default())
        );
    }
    html.push_str("</table>");
}

/// The type of a member, in a few words.
fn kind(member: &Value) -> String {
    if let Some(schema) = member["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return link(schema);
    }
    if member["type"] == "array" {
        return format!("list of {}", kind(&member["items"]));
    }
    if let Some(value) = member.get("const") {
        return format!("<code>{}</code>", escape(&value.to_string()));
    }
    if let Some(values) = member["enum"].as_array() {
        let values: Vec<String> = values.iter().map(|value| escape(&value.to_string())).collect();
        return values.join(" or ");
    }
    let kind = match &member["type"] {
        Value::Array(kinds) => kinds
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(" or "),
        kind => kind.as_str().unwrap_or("any").to_owned(),
    };
    match (&member["minimum"], &member["maximum"]) {
        (Value::Number(low), Value::Number(high)) => format!("{kind}, {low} to {high}"),
        _ => kind,
    }
}

fn link(schema: &str) -> String {
    format!("<a href=\"#{schema}\"><code>{schema}</code></a>")
}

/// Text with what stands between backticks as code.
fn with_code(text: &str) -> String {
    let mut html = String::new();
    for (number, part) in text.split('`').enumerate() {
        if number % 2 == 0 {
            html.push_str(&escape(part));
        } else {
            let _ = write!(html, "<code>{}</code>", escape(part));
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_everything_and_loads_nothing() {
        let page = page();
        for operation in ALL {
            assert!(page.contains(&format!("id=\"{}\"", operation.id)));
        }
        // Every link to a body leads somewhere.
        for target in page.split("href=\"#").skip(1) {
            let name = target.split('"').next().unwrap();
            assert!(page.contains(&format!("id=\"{name}\"")), "{name}");
        }
        for foreign in ["http://", "https://", "<script", "style=", "onclick", "<img"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn what_is_written_is_text() {
        assert_eq!(with_code("a `<b>` & c"), "a <code>&lt;b&gt;</code> &amp; c");
    }
}
