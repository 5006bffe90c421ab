//! The fields of a request, from its query and its JSON body, read with suspicion.
//!
//! Every field that is wrong, unknown, doubled or said twice in different words is named, all in one answer, and
//! nothing is assumed: a mistyped option must not run a job without its lock. Numbers are judged by their JSON
//! text, so `30.0`, `3e1` and `"30"` are not integers.

use std::borrow::Cow;

use ferrolho_core::wire::FieldError;
use ferrolho_core::{
    Claim, FencingToken, Holder, Invalid, Metadata, Owner, Principal, Reason, Resource, Ttl, Wait,
};
use percent_encoding::percent_decode_str;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::problem::{Code, Problem};

/// The fields that an endpoint was given, and what is wrong with them.
#[derive(Debug, Default)]
pub(super) struct Form {
    fields: Vec<(String, Value)>,
    errors: Vec<FieldError>,
}

#[derive(Debug)]
enum Value {
    Json(Box<RawValue>),
    Query(String),
}

/// An error of a field.
pub(super) fn field_error(field: &str, invalid: &Invalid) -> FieldError {
    FieldError {
        field: field.to_owned(),
        code: invalid.code.to_owned(),
        message: invalid.message.clone(),
    }
}

impl Form {
    /// Reads query and body. The error is a body that is not JSON; everything else is kept for [`Form::finish`].
    pub(super) fn read(
        query: Option<&str>,
        in_query: &[&str],
        body: &[u8],
        in_body: &[&str],
    ) -> Result<Self, Problem> {
        let mut form = Self::default();
        form.read_query(query.unwrap_or_default(), in_query);
        form.read_body(body, in_body)?;
        Ok(form)
    }

    /// Notes an error.
    pub(super) fn error(&mut self, error: FieldError) {
        self.errors.push(error);
    }

    fn wrong(&mut self, field: &str, code: &'static str, message: impl Into<String>) {
        self.errors.push(field_error(field, &Invalid::new(code, message)));
    }

    fn read_query(&mut self, query: &str, known: &[&str]) {
        if query.is_empty() {
            return;
        }
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(&name.replace('+', " "));
            let value = decode(&value.replace('+', " "));
            match (name, value) {
                (Ok(name), Ok(value)) => self.add(name, Value::Query(value), known, "query parameter"),
                (Ok(name), Err(invalid)) => {
                    self.wrong(&name, invalid.code, format!("{name} {}", invalid.message));
                }
                (Err(invalid), _) => {
                    self.wrong(
                        "query",
                        invalid.code,
                        format!("the name of a query parameter {}", invalid.message),
                    );
                }
            }
        }
    }

    fn read_body(&mut self, body: &[u8], known: &[&str]) -> Result<(), Problem> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let malformed = |what: String| Problem::new(Code::MalformedJson, what);
        let text = std::str::from_utf8(body).map_err(|error| {
            malformed(format!(
                "The body is not UTF-8 (at byte {}).",
                error.valid_up_to()
            ))
        })?;
        let json: &RawValue = serde_json::from_str(text).map_err(|error| {
            malformed(format!(
                "The body is not JSON (line {}, column {}).",
                error.line(),
                error.column()
            ))
        })?;
        if !json.get().starts_with('{') {
            self.wrong(
                "body",
                "wrong-type",
                format!("the body must be a JSON object{}", with_keys(known)),
            );
            return Ok(());
        }
        let members = serde_json::Deserializer::from_str(json.get())
            .deserialize_map(Members)
            .map_err(|_| malformed("A key of the JSON body is not valid Unicode.".to_owned()))?;
        for (name, value) in members {
            self.add(name, Value::Json(value), known, "key");
        }
        Ok(())
    }

    /// Adds a field, unless it is unknown, or given before in the same place or in other words.
    fn add(&mut self, name: String, value: Value, known: &[&str], what: &str) {
        if !known.contains(&name.as_str()) {
            let name: String = name.chars().take(100).collect();
            return self.wrong(
                &name,
                "unknown",
                format!("there is no {what} {name} here{}", with_keys(known)),
            );
        }
        let before = self.fields.iter().find(|(other, _)| *other == name);
        match (before.map(|(_, before)| before), &value) {
            (None, _) => self.fields.push((name, value)),
            (Some(Value::Query(query)), Value::Json(json)) if says_the_same(query, json) => {}
            (Some(Value::Query(_)), Value::Json(_)) => {
                let message = format!("{name} is given differently in the body and in the query");
                self.wrong(&name, "contradiction", message);
            }
            (Some(_), _) => {
                let message = format!("{name} is given more than once");
                self.wrong(&name, "duplicate", message);
            }
        }
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        let index = self.fields.iter().position(|(field, _)| field == name)?;
        Some(self.fields.swap_remove(index).1)
    }

    fn required<T>(&mut self, name: &str, read: impl FnOnce(&Value) -> Result<T, Invalid>) -> Option<T> {
        // A field that was refused already is not also missing.
        let is_refused = self.errors.iter().any(|error| error.field == name);
        match self.take(name) {
            Some(value) => self.keep(name, read(&value)),
            None if is_refused => None,
            None => {
                self.wrong(name, "missing", format!("{name} is missing"));
                None
            }
        }
    }

    fn optional<T>(&mut self, name: &str, read: impl FnOnce(&Value) -> Result<T, Invalid>) -> Option<T> {
        let value = self.take(name)?;
        self.keep(name, read(&value))
    }

    fn keep<T>(&mut self, name: &str, read: Result<T, Invalid>) -> Option<T> {
        read.map_err(|invalid| self.error(field_error(name, &invalid)))
            .ok()
    }

    /// The name in a path segment, decoded once.
    pub(super) fn resource(&mut self, segment: &str) -> Option<Resource> {
        let name = decode(segment)
            .map_err(|invalid| Invalid::new(invalid.code, format!("resource {}", invalid.message)));
        self.keep("resource", name.and_then(|name| Resource::new(&name)))
    }

    /// The owner in a path segment, decoded once.
    pub(super) fn owner_in_path(&mut self, segment: &str) -> Option<Owner> {
        let name = decode(segment)
            .map_err(|invalid| Invalid::new(invalid.code, format!("owner {}", invalid.message)));
        self.keep("owner", name.and_then(|name| Owner::new(&name)))
    }

    /// The field `owner`, under this principal.
    pub(super) fn holder(&mut self, principal: Option<Principal>) -> Option<Holder> {
        let owner = self.required("owner", |value| Owner::new(&value.text("owner")?))?;
        Some(Holder { owner, principal })
    }

    /// The fields `owner` and, optionally, `fencing_token`.
    pub(super) fn claim(&mut self, principal: Option<Principal>) -> Option<Claim> {
        let token = self.token();
        let holder = self.holder(principal)?;
        Some(Claim { holder, token })
    }

    /// The optional field `fencing_token`.
    pub(super) fn token(&mut self) -> Option<FencingToken> {
        self.optional("fencing_token", |value| {
            FencingToken::new(value.integer("fencing_token")?)
        })
    }

    /// The field `ttl_seconds`.
    pub(super) fn ttl(&mut self, max: Ttl) -> Option<Ttl> {
        self.required("ttl_seconds", |value| {
            Ttl::new(value.integer("ttl_seconds")?, max)
        })
    }

    /// The optional field `wait_seconds`.
    pub(super) fn wait(&mut self) -> Wait {
        self.optional("wait_seconds", |value| Wait::new(value.integer("wait_seconds")?))
            .unwrap_or_default()
    }

    /// The optional field `metadata`.
    pub(super) fn metadata(&mut self) -> Option<Metadata> {
        self.optional("metadata", |value| match value {
            Value::Json(json) => Metadata::new(json),
            Value::Query(_) => Err(Invalid::new("wrong-type", "metadata must be a JSON object")),
        })
    }

    /// The field `reason`.
    pub(super) fn reason(&mut self) -> Option<Reason> {
        self.required("reason", |value| Reason::new(&value.text("reason")?))
    }

    /// The field `resources`: 1 to 32 names, none twice.
    pub(super) fn resources(&mut self) -> Option<Vec<Resource>> {
        self.required("resources", |value| {
            let wrong = || Invalid::new("wrong-type", "resources must be a list of 1 to 32 names");
            let Value::Json(json) = value else {
                return Err(wrong());
            };
            let names: Vec<&RawValue> = serde_json::from_str(json.get()).map_err(|_| wrong())?;
            if names.is_empty() || names.len() > MAX_SET {
                return Err(Invalid::new(
                    "wrong-length",
                    format!("resources has {} names; 1 to {MAX_SET} are allowed", names.len()),
                ));
            }
            let mut resources = Vec::with_capacity(names.len());
            for name in names {
                let resource = Resource::new(&text_of(name, "each of resources")?)?;
                if resources.contains(&resource) {
                    return Err(Invalid::new("duplicate", "resources must not name a lock twice"));
                }
                resources.push(resource);
            }
            Ok(resources)
        })
    }

    /// The optional query parameter `name`: `true` or `false`.
    pub(super) fn flag(&mut self, name: &str) -> bool {
        let read = |value: &Value| match value {
            Value::Query(text) if text == "true" => Ok(true),
            Value::Query(text) if text == "false" => Ok(false),
            _ => Err(Invalid::new(
                "wrong-type",
                format!("{name} must be true or false"),
            )),
        };
        self.optional(name, read).unwrap_or(false)
    }

    /// The optional query parameter `limit`.
    pub(super) fn limit(&mut self, default: usize, max: usize) -> usize {
        let read = |value: &Value| {
            let number = value.integer("limit")?;
            match usize::try_from(number) {
                Ok(limit) if (1..=max).contains(&limit) => Ok(limit),
                _ => Err(Invalid::new(
                    "out-of-range",
                    format!("limit must be from 1 to {max}"),
                )),
            }
        };
        self.optional("limit", read).unwrap_or(default)
    }

    /// The optional query parameter `name`, read by `read`; an empty one counts as absent.
    pub(super) fn parameter<T>(&mut self, name: &str, read: fn(&str) -> Result<T, Invalid>) -> Option<T> {
        let text = self.optional(name, |value| value.text(name))?;
        if text.is_empty() {
            return None;
        }
        let value = read(&text);
        self.keep(name, value)
    }

    /// The values, if nothing was wrong; else everything that was.
    pub(super) fn finish<T>(self, values: Option<T>) -> Result<T, Problem> {
        match values {
            Some(values) if self.errors.is_empty() => Ok(values),
            _ => Err(Problem::invalid(self.errors)),
        }
    }
}

/// The most locks that one request may ask for together.
const MAX_SET: usize = 32;

impl Value {
    fn text(&self, name: &str) -> Result<String, Invalid> {
        match self {
            Self::Query(text) => Ok(text.clone()),
            Self::Json(json) => text_of(json, name),
        }
    }

    fn integer(&self, name: &str) -> Result<i128, Invalid> {
        let text = match self {
            Self::Query(text) => text.as_str(),
            Self::Json(json) => json.get(),
        };
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(Invalid::new(
                "wrong-type",
                format!("{name} must be an integer, such as 30"),
            ));
        }
        // What has more digits than an i128 is out of every range.
        Ok(text.parse().unwrap_or(if text.starts_with('-') {
            i128::MIN
        } else {
            i128::MAX
        }))
    }
}

fn text_of(json: &RawValue, name: &str) -> Result<String, Invalid> {
    if !json.get().starts_with('"') {
        return Err(Invalid::new("wrong-type", format!("{name} must be a string")));
    }
    serde_json::from_str(json.get())
        .map_err(|_| Invalid::new("not-unicode", format!("{name} must be valid Unicode text")))
}

fn says_the_same(query: &str, json: &RawValue) -> bool {
    let text: Result<String, _> = serde_json::from_str(json.get());
    text.map_or_else(|_| json.get() == query, |text| text.trim() == query.trim())
}

fn with_keys(known: &[&str]) -> String {
    if known.is_empty() {
        "; none is known".to_owned()
    } else {
        format!("; known: {}", known.join(", "))
    }
}

/// The name of a lock in a path segment, if it can be one.
pub(super) fn resource_in_path(segment: &str) -> Option<Resource> {
    Resource::new(&decode(segment).ok()?).ok()
}

/// Decodes percent escapes once, strictly: each must be whole, and the result UTF-8.
fn decode(text: &str) -> Result<String, Invalid> {
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        let digits = rest.as_bytes().get(at + 1..at + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            return Err(Invalid::new(
                "bad-escape",
                "has a % that does not begin an escape such as %2F",
            ));
        }
        rest = &rest[at + 3..];
    }
    percent_decode_str(text)
        .decode_utf8()
        .map(Cow::into_owned)
        .map_err(|_| Invalid::new("not-utf8", "must be UTF-8 after percent-decoding"))
}

/// Reads the members of a JSON object as they stand, doubled ones too.
struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<(String, Box<RawValue>)>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(members)
    }
}
