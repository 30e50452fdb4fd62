//! The derives and the attribute of `weir-kit`: names are written once, in Rust.
//!
//! `#[derive(Bundle)]` turns a struct of signals into a bundle or a port struct, `#[derive(HwEnum)]` a fieldless enum into a
//! hardware value, `#[hw]` gives every `let` binding's nets its name. No generics beyond plain type parameters; no tuple structs.
#![forbid(unsafe_code)]
use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, Fields, GenericArgument, ItemFn, Pat, PathArguments,
    Stmt, Type, parse_macro_input,
};

/// Makes a struct of signals a `Bundle`. See the crate `weir-kit`.
#[proc_macro_derive(Bundle, attributes(bundle, bits, params, count, input, output, flip))]
pub fn derive_bundle(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    bundle(&input)
        .unwrap_or_else(Error::into_compile_error)
        .into()
}

/// Makes a fieldless enum a hardware value. See the crate `weir-kit`.
#[proc_macro_derive(HwEnum)]
pub fn derive_hw_enum(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    hw_enum(&input)
        .unwrap_or_else(Error::into_compile_error)
        .into()
}

/// Names the nets that `let` bindings hold after them. See the crate `weir-kit`.
#[proc_macro_attribute]
pub fn hw(
    _args: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    let mut function = parse_macro_input!(item as ItemFn);
    NameLets.visit_item_fn_mut(&mut function);
    quote!(#function).into()
}

fn has(attrs: &[Attribute], name: &str) -> bool {
    attrs.iter().any(|a| a.path().is_ident(name))
}

fn argument(attrs: &[Attribute], name: &str) -> syn::Result<Option<Expr>> {
    attrs
        .iter()
        .find(|a| a.path().is_ident(name))
        .map(|a| a.parse_args::<Expr>())
        .transpose()
}

/// The doc comment, lines joined.
fn doc(attrs: &[Attribute]) -> String {
    let lines = attrs
        .iter()
        .filter(|a| a.path().is_ident("doc"))
        .filter_map(|a| match &a.meta.require_name_value().ok()?.value {
            Expr::Lit(syn::ExprLit {
                lit: syn::Lit::Str(s),
                ..
            }) => Some(s.value().trim().to_string()),
            _ => None,
        });
    lines.collect::<Vec<_>>().join(" ")
}

/// `T` of `Vec<T>` or `[T; N]`.
fn element(ty: &Type) -> syn::Result<Type> {
    match ty {
        Type::Array(a) => Ok((*a.elem).clone()),
        Type::Path(p) => match p.path.segments.last().map(|s| (&s.ident, &s.arguments)) {
            Some((id, PathArguments::AngleBracketed(args))) if id == "Vec" => {
                match args.args.first() {
                    Some(GenericArgument::Type(t)) => Ok(t.clone()),
                    _ => Err(Error::new(ty.span(), "Vec of what?")),
                }
            }
            _ => Err(Error::new(
                ty.span(),
                "#[count(n)] goes with Vec<T> or [T; N]",
            )),
        },
        _ => Err(Error::new(
            ty.span(),
            "#[count(n)] goes with Vec<T> or [T; N]",
        )),
    }
}

fn is_sig(ty: &Type) -> bool {
    matches!(ty, Type::Path(p) if p.path.segments.last().is_some_and(|s| s.ident == "Sig"))
}

fn bundle(input: &DeriveInput) -> syn::Result<TokenStream> {
    let name = &input.ident;
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(name.span(), "a bundle is a struct"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new(name.span(), "a bundle has named fields"));
    };
    let mut params: Type = syn::parse_quote!(());
    for attr in input.attrs.iter().filter(|a| a.path().is_ident("bundle")) {
        attr.parse_nested_meta(|meta| {
            if !meta.path.is_ident("params") {
                return Err(meta.error("only `params = Type` is known"));
            }
            params = meta.value()?.parse()?;
            Ok(())
        })?;
    }
    let (mut makes, mut eaches, mut maps) = (vec![], vec![], vec![]);
    for f in &fields.named {
        let Some(id) = &f.ident else { continue };
        let ty = &f.ty;
        let label = id.to_string().trim_start_matches("r#").to_string();
        let dir = match (has(&f.attrs, "input"), has(&f.attrs, "output")) {
            (true, true) => return Err(Error::new(id.span(), "#[input] and #[output] at once")),
            (true, false) => quote!(::core::option::Option::Some(::weir_kit::Dir::In)),
            (false, true) => quote!(::core::option::Option::Some(::weir_kit::Dir::Out)),
            (false, false) => quote!(::core::option::Option::None),
        };
        let flip = has(&f.attrs, "flip");
        let doc = doc(&f.attrs);
        let at = quote!(__at.field(#label, #dir, #flip, #doc));
        let count = argument(&f.attrs, "count")?;
        let item = if count.is_some() {
            element(ty)?
        } else {
            ty.clone()
        };
        let p = match (argument(&f.attrs, "bits")?, argument(&f.attrs, "params")?) {
            (Some(_), Some(_)) => {
                return Err(Error::new(id.span(), "#[bits] and #[params] at once"));
            }
            (Some(w), None) => quote!(&::weir_kit::Width::width(#w)),
            (None, Some(e)) => quote!(&(#e)),
            (None, None) if is_sig(&item) => {
                return Err(Error::new(id.span(), "how wide? add #[bits(width)]"));
            }
            (None, None) => quote!(p),
        };
        match count {
            None => {
                makes.push(quote!(#id: <#ty as ::weir_kit::Bundle>::make(#p, &#at, __new)));
                eaches.push(quote!(::weir_kit::Bundle::each(&self.#id, &#at, __f);));
                maps.push(quote!(#id: ::weir_kit::Bundle::map(&self.#id, __f)));
            }
            Some(n) => {
                let one =
                    quote!(<#item as ::weir_kit::Bundle>::make(#p, &__list.element(__i), __new));
                let make = match ty {
                    Type::Array(_) => quote!(::core::array::from_fn(|__i| #one)),
                    _ => {
                        quote!((0..::weir_kit::Width::width(#n) as usize).map(|__i| #one).collect())
                    }
                };
                makes.push(quote!(#id: { let __list = #at; #make }));
                eaches.push(quote!({
                    let __list = #at;
                    for (__i, __x) in self.#id.iter().enumerate() {
                        ::weir_kit::Bundle::each(__x, &__list.element(__i), __f);
                    }
                }));
                maps.push(match ty {
                    Type::Array(_) => quote!(#id: ::core::array::from_fn(|__i| ::weir_kit::Bundle::map(&self.#id[__i], __f))),
                    _ => quote!(#id: self.#id.iter().map(|__x| ::weir_kit::Bundle::map(__x, __f)).collect()),
                });
            }
        }
    }
    let (generics, args, clause) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #generics ::weir_kit::Bundle for #name #args #clause {
            type Params = #params;
            #[allow(unused_variables)]
            #[track_caller]
            fn make(p: &#params, __at: &::weir_kit::At, __new: &mut ::weir_kit::NewLeaf<'_>) -> Self {
                #name { #(#makes),* }
            }
            fn each(&self, __at: &::weir_kit::At, __f: &mut dyn FnMut(&::weir_kit::At, ::weir_kit::Sig)) {
                #(#eaches)*
            }
            fn map(&self, __f: &mut dyn FnMut(::weir_kit::Sig) -> ::weir_kit::Sig) -> Self {
                #name { #(#maps),* }
            }
        }
        #[automatically_derived]
        impl #generics ::weir_kit::Nameable for #name #args #clause {
            fn set_name(&self, name: &str) {
                ::weir_kit::name_bundle(self, name);
            }
        }
    })
}

fn hw_enum(input: &DeriveInput) -> syn::Result<TokenStream> {
    let name = &input.ident;
    let Data::Enum(data) = &input.data else {
        return Err(Error::new(name.span(), "HwEnum is for enums"));
    };
    if data.variants.is_empty() {
        return Err(Error::new(
            name.span(),
            "an enum without variants has no value",
        ));
    }
    if let Some(v) = data
        .variants
        .iter()
        .find(|v| !matches!(v.fields, Fields::Unit))
    {
        return Err(Error::new(v.span(), "variants of a HwEnum have no fields"));
    }
    let idents: Vec<_> = data.variants.iter().map(|v| &v.ident).collect();
    let names: Vec<String> = idents.iter().map(|i| i.to_string()).collect();
    let text = name.to_string();
    let consts: Vec<_> = (0..idents.len()).map(|i| format_ident!("V{}", i)).collect();
    Ok(quote! {
        #[automatically_derived]
        impl ::weir_kit::HwEnum for #name {
            const NAME: &'static str = #text;
            const WIDTH: u32 = {
                let mut max = 0u64;
                #( if #name::#idents as u64 > max { max = #name::#idents as u64; } )*
                ::weir_kit::bits_for(max)
            };
            const VARIANTS: &'static [(&'static str, u64)] = {
                #( const #consts: u64 = #name::#idents as u64; )*
                &[#((#names, #consts)),*]
            };
            fn value(self) -> u64 {
                self as u64
            }
        }
        #[automatically_derived]
        impl ::weir_kit::Operand for #name {
            #[track_caller]
            fn sig(self, _w: u32) -> ::weir_kit::Sig {
                ::weir_kit::HwEnum::lit(self)
            }
            fn width_hint(&self) -> ::core::option::Option<u32> {
                ::core::option::Option::Some(<Self as ::weir_kit::HwEnum>::WIDTH)
            }
        }
    })
}

/// Adds a naming call after each `let` of plain identifiers.
struct NameLets;

fn idents(pat: &Pat, out: &mut Vec<syn::Ident>) {
    match pat {
        // `let mut` holds what a loop replaces: its first value is not what the name means.
        Pat::Ident(p)
            if p.mutability.is_none()
                && p.by_ref.is_none()
                && !p.ident.to_string().starts_with('_') =>
        {
            out.push(p.ident.clone())
        }
        Pat::Type(t) => idents(&t.pat, out),
        Pat::Tuple(t) => t.elems.iter().for_each(|p| idents(p, out)),
        Pat::TupleStruct(t) => t.elems.iter().for_each(|p| idents(p, out)),
        Pat::Struct(s) => s.fields.iter().for_each(|f| idents(&f.pat, out)),
        _ => {}
    }
}

impl VisitMut for NameLets {
    fn visit_block_mut(&mut self, block: &mut syn::Block) {
        visit_mut::visit_block_mut(self, block);
        let old = std::mem::take(&mut block.stmts);
        for stmt in old {
            let mut names = vec![];
            if let Stmt::Local(local) = &stmt
                && let Some(init) = &local.init
                && init.diverge.is_none()
            {
                idents(&local.pat, &mut names);
            }
            block.stmts.push(stmt);
            for id in names {
                let label = id.to_string().trim_start_matches("r#").to_string();
                block.stmts.push(syn::parse_quote! {
                    {
                        #[allow(unused_imports)]
                        use ::weir_kit::{ApplyName as _, ApplyNothing as _};
                        (&::weir_kit::Binding(&#id)).apply(#label);
                    }
                });
            }
        }
    }
}
