//! Values of any type with all of their fields there: each text in them is a secret that names its field, each number of 32 bits a secret.

use serde::de::value::{Error, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

/// What each text begins with.
pub(super) const SECRET: &str = "s3cret-";

/// What each text ends with.
pub(super) const END: char = ';';

/// Each number of 32 bits without a sign.
pub(super) const NUMBER: u32 = 0x5ec2_e700;

/// A value of which nothing is missing: a list has one element, an enumeration is its first variant.
pub(super) fn filled<T: DeserializeOwned>() -> T {
    let (structure, field) = ("", "");
    T::deserialize(Filled { structure, field }).unwrap()
}

/// Fills a field of a structure, by their names.
#[derive(Clone, Copy)]
struct Filled {
    structure: &'static str,
    field: &'static str,
}

impl<'de> Deserializer<'de> for Filled {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u8(1)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(true)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u32(NUMBER)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let Self { structure, field } = self;
        visitor.visit_string(format!("{SECRET}{structure}.{field}{END}"))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(One(Some(self)))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        structure: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let field = "";
        let at = Self { structure, field };
        visitor.visit_map(Fields { fields, at })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let first: StrDeserializer<'_, Error> = variants[0].into_deserializer();
        visitor.visit_enum(first)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u64 u128 f32 f64 char bytes byte_buf unit unit_struct
        newtype_struct tuple tuple_struct map identifier ignored_any
    }
}

/// A list of one.
struct One(Option<Filled>);

impl<'de> SeqAccess<'de> for One {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.0.take().map(|one| seed.deserialize(one)).transpose()
    }
}

/// Fields that are still to come, and the one that has come to be filled.
struct Fields {
    fields: &'static [&'static str],
    at: Filled,
}

impl<'de> MapAccess<'de> for Fields {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some((first, rest)) = self.fields.split_first() else {
            return Ok(None);
        };
        (self.at.field, self.fields) = (first, rest);
        let key: StrDeserializer<'_, Error> = first.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(self.at)
    }
}
