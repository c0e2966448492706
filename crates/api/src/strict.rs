//! Strict JSON: no name occurs twice in an object. Which of two values counts would be a guess, and a
//! guess about a header or a key is not what a client has sent.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// The error for a name that occurs twice.
pub(crate) const REPEATED: &str = "a name stands twice in one object";

/// Any JSON value.
pub(crate) struct Strict(pub(crate) Value);

/// An object.
pub(crate) struct Fields<V>(pub(crate) BTreeMap<String, V>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Fields<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object<V>(PhantomData<V>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for Object<V> {
            type Value = Fields<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut fields = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    match fields.entry(name) {
                        Entry::Vacant(entry) => entry.insert(map.next_value()?),
                        Entry::Occupied(_) => return Err(M::Error::custom(REPEATED)),
                    };
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(Object(PhantomData))
    }
}

/// The values that are neither lists nor objects.
macro_rules! plain {
    ($($visit:ident $type:ty),*) => {
        $(fn $visit<E>(self, value: $type) -> Result<Value, E> {
            Ok(value.into())
        })*
    };
}

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Anything;

        impl<'de> Visitor<'de> for Anything {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any JSON")
            }

            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            plain!(visit_bool bool, visit_i64 i64, visit_u64 u64, visit_f64 f64, visit_str &str);

            fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<Value, S::Error> {
                let mut list = Vec::new();
                while let Some(Strict(item)) = items.next_element()? {
                    list.push(item);
                }
                Ok(list.into())
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Value, M::Error> {
                let fields = Fields::deserialize(MapAccessDeserializer::new(map))?;
                let fields = fields.0.into_iter();
                Ok(fields.map(|(name, Strict(value))| (name, value)).collect())
            }
        }

        deserializer.deserialize_any(Anything).map(Strict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_json_reads_what_plain_json_reads() {
        for text in [
            "null",
            "true",
            "-7",
            "18446744073709551615",
            "1.5",
            "\"a\\n\"",
            "[1,[2],{}]",
            r#"{"a":{"b":[null]},"c":"d"}"#,
        ] {
            let Strict(read) = serde_json::from_str(text).unwrap();
            assert_eq!(read, serde_json::from_str::<Value>(text).unwrap());
        }
    }

    #[test]
    fn a_name_that_occurs_twice_is_refused_at_any_depth() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"[{"b":{"a":1,"c":2,"a":3}}]"#,
            r#"{"a":1,"\u0061":2}"#,
        ] {
            let error = serde_json::from_str::<Strict>(text).err().unwrap();
            assert!(error.to_string().contains(REPEATED), "{error}");
        }
        let text = r#"{"a":1,"a":1}"#;
        assert!(serde_json::from_str::<Fields<u8>>(text).is_err());
        assert!(serde_json::from_str::<Fields<u8>>(r#"{"a":1,"b":1}"#).is_ok());
    }
}
