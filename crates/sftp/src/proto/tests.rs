//! Both directions of the codec, against each other and against hand-laid bytes.
