//! Bodies and catalogs in, what is reached out.

use std::collections::HashMap;
use std::sync::Arc;

use expect_test::{Expect, expect};

use super::{
    Attached, AttachedKind, Body, BuiltInCode, Code, Declaration, FunctionCode, OperatorCode,
    Reach, Search, TypeCode, Use, Writing, classify, events, grown,
};
use crate::catalog::{
    Catalog, MapId, NameScope, NodeId, Placement, Relation, RelationKind, Volatility,
};
use crate::hash::KeyType;

/// What a body says by itself.
fn body(language: &str, text: &str) -> String {
    let body = Body::of_function(language, text, false, None);
    let mut said = body.opaque.clone().unwrap_or_else(|| "computes".to_owned());
    for read in &body.reads {
        let schema = read.schema.as_ref().map(|schema| format!("{schema}.")).unwrap_or_default();
        said += &format!("; reads {schema}{}", read.name);
    }
    for (is, word) in [(body.sets, "sets"), (body.catches, "catches"), (body.commits, "commits")] {
        if is {
            said += "; ";
            said += word;
        }
    }
    let settings: Vec<&String> = body.settings().collect();
    if !settings.is_empty() {
        said += &format!("; settings {settings:?}");
    }
    said
}

fn check_bodies(language: &str, texts: &[&str], expected: Expect) {
    let lines = texts.iter().map(|text| format!("{text}\n  {}\n", body(language, text)));
    expected.assert_eq(&lines.collect::<String>());
}

#[test]
fn bodies_in_sql() {
    check_bodies(
        "sql",
        &[
            "SELECT $1 + 1",
            "SELECT sum(x) FROM unnest($1) AS x",
            "SELECT count(*) FROM public.orders WHERE id = $1",
            "WITH w AS (SELECT 1) SELECT * FROM w, items",
            "SELECT 1; SELECT 2",
            "SELECT 1 UNION SELECT (SELECT v FROM t FOR UPDATE)",
            "WITH w AS (DELETE FROM t RETURNING *) SELECT * FROM w",
            "INSERT INTO t VALUES (1)",
            "SET app.tenant = 'x'; SELECT 1",
            "SELECT set_config('app.tenant', $1, false)",
            "BEGIN ATOMIC\n SELECT lower(a);\nEND",
            "RETURN (a + b)",
            "SELECT 'a\\' -- ' || x",
            "not sql",
        ],
        expect![[r#"
            SELECT $1 + 1
              computes
            SELECT sum(x) FROM unnest($1) AS x
              computes
            SELECT count(*) FROM public.orders WHERE id = $1
              computes; reads public.orders
            WITH w AS (SELECT 1) SELECT * FROM w, items
              computes; reads w; reads items
            SELECT 1; SELECT 2
              computes
            SELECT 1 UNION SELECT (SELECT v FROM t FOR UPDATE)
              locks rows or makes tables; reads t
            WITH w AS (DELETE FROM t RETURNING *) SELECT * FROM w
              writes; reads w
            INSERT INTO t VALUES (1)
              does more than read
            SET app.tenant = 'x'; SELECT 1
              does more than read; sets; settings ["app.tenant"]
            SELECT set_config('app.tenant', $1, false)
              computes; settings ["app.tenant"]
            BEGIN ATOMIC
             SELECT lower(a);
            END
              computes
            RETURN (a + b)
              computes
            SELECT 'a\' -- ' || x
              has a body whose literals cannot be read with certainty; sets; catches
            not sql
              has a body that cannot be read; sets; catches
        "#]],
    );
}

#[test]
fn bodies_in_plpgsql() {
    check_bodies(
        "plpgsql",
        &[
            "BEGIN RETURN a + 1; END",
            "DECLARE n int; BEGIN SELECT count(*) INTO n FROM items WHERE a = 1; RETURN n; END",
            "BEGIN RETURN (SELECT 1 FROM a JOIN s.b USING (x), c AS d WHERE true); END",
            "BEGIN RETURN extract(epoch FROM x) + length(substring(y FROM 2)); END",
            "BEGIN IF NEW.a IS DISTINCT FROM OLD.a THEN NEW.b := 1; END IF; RETURN NEW; END",
            "BEGIN FOR r IN SELECT * FROM generate_series(1, 3) LOOP NULL; END LOOP; END",
            "BEGIN FOR r IN SELECT * FROM (a JOIN b ON true) LOOP NULL; END LOOP; END",
            "BEGIN EXECUTE 'SELECT 1 FROM h'; END",
            "BEGIN UPDATE t SET v = 1; RETURN true; END",
            "BEGIN SET LOCAL app.user = '1'; RETURN true; END",
            "BEGIN PERFORM set_config('my.tenant', x, true); RETURN 1; END",
            "BEGIN RETURN 1; EXCEPTION WHEN OTHERS THEN RETURN 2; END",
            "BEGIN a := 1; COMMIT; END",
            "BEGIN RETURN U&\"d\\0061ta\"; END",
        ],
        expect![[r#"
            BEGIN RETURN a + 1; END
              computes
            DECLARE n int; BEGIN SELECT count(*) INTO n FROM items WHERE a = 1; RETURN n; END
              computes; reads items
            BEGIN RETURN (SELECT 1 FROM a JOIN s.b USING (x), c AS d WHERE true); END
              computes; reads a; reads s.b; reads c
            BEGIN RETURN extract(epoch FROM x) + length(substring(y FROM 2)); END
              computes
            BEGIN IF NEW.a IS DISTINCT FROM OLD.a THEN NEW.b := 1; END IF; RETURN NEW; END
              computes
            BEGIN FOR r IN SELECT * FROM generate_series(1, 3) LOOP NULL; END LOOP; END
              computes
            BEGIN FOR r IN SELECT * FROM (a JOIN b ON true) LOOP NULL; END LOOP; END
              reads what cannot be told from its text
            BEGIN EXECUTE 'SELECT 1 FROM h'; END
              runs SQL that it builds (EXECUTE); sets
            BEGIN UPDATE t SET v = 1; RETURN true; END
              writes or locks rows (UPDATE)
            BEGIN SET LOCAL app.user = '1'; RETURN true; END
              changes settings (SET); sets; settings ["app.user"]
            BEGIN PERFORM set_config('my.tenant', x, true); RETURN 1; END
              computes; settings ["my.tenant"]
            BEGIN RETURN 1; EXCEPTION WHEN OTHERS THEN RETURN 2; END
              computes; catches
            BEGIN a := 1; COMMIT; END
              ends transactions (COMMIT); commits
            BEGIN RETURN U&"d\0061ta"; END
              has a body whose literals cannot be read with certainty; sets; catches
        "#]],
    );
}

#[test]
fn other_languages() {
    for (language, immutable, extension, opaque) in [
        ("c", true, None, false),
        ("c", false, None, true),
        ("c", false, Some("uuid-ossp"), false),
        ("c", false, Some("dblink"), true),
        ("internal", true, None, true),
        ("plperl", true, None, true),
    ] {
        let body = Body::of_function(language, "x", immutable, extension);
        assert_eq!(body.opaque.is_some(), opaque, "{language} {extension:?}");
    }
    // What changes a setting does so on one node, whatever language it is in.
    for (text, opaque) in [("set_limit", true), ("show_limit", false)] {
        let body = Body::of_function("c", text, false, Some("pg_trgm"));
        assert_eq!(body.opaque.is_some(), opaque, "{text}");
    }
}

#[test]
fn triggers_that_give_the_row_another_key() {
    for (text, changes) in [
        ("BEGIN RETURN NEW; END", false),
        ("BEGIN NEW.v := 1; RETURN NEW; END", false),
        ("BEGIN IF NEW.k = 1 THEN NEW.v = 2; END IF; RETURN NEW; END", false),
        ("BEGIN RETURN NULL; END", false),
        ("BEGIN NEW.k := 1; RETURN NEW; END", true),
        ("begin new.k = coalesce(new.k, 0) + 1; return new; end", true),
        ("BEGIN NEW.\"k\" := 1; RETURN NEW; END", true),
        ("BEGIN SELECT 1, 2 INTO NEW.v, NEW.k; RETURN NEW; END", true),
        ("BEGIN SELECT * INTO NEW FROM items; RETURN NEW; END", true),
        ("BEGIN NEW := f(NEW); RETURN NEW; END", true),
        ("DECLARE r t; BEGIN r := NEW; r.k := 1; RETURN r; END", true),
    ] {
        assert_eq!(
            Body::of_function("plpgsql", text, false, None).may_assign("k"),
            changes,
            "{text}"
        );
    }
}

/// A catalog with the tables `h` (hash), `r` (replicated), `l` (home), and these functions in plpgsql
/// or SQL: name and body.
struct World {
    catalog: Catalog,
    code: Code,
    next: u32,
}

impl World {
    fn new() -> Self {
        let hash = Placement::Hash { key: 0, key_type: KeyType::Int4, map: MapId(1) };
        let tables = [("h", hash), ("r", Placement::Replicated), ("l", Placement::Home)];
        let table = |(index, (name, placement)): (usize, (&str, Placement))| {
            let relation = Relation {
                schema: "public".to_owned(),
                name: name.to_owned(),
                oid: 20_000 + u32::try_from(index).unwrap(),
                kind: RelationKind::Table,
                placement,
                columns: Vec::new(),
                primary_key: Vec::new(),
                has_triggers: false,
                row_security: false,
                returned_by: None,
                kept: Vec::new(),
                referred: Vec::new(),
                computed_keys: Vec::new(),
            };
            (name.to_owned(), Arc::new(relation))
        };
        let public = tables.into_iter().enumerate().map(table).collect();
        let catalog = Catalog {
            nodes: vec![NodeId(1), NodeId(2)],
            relations: HashMap::from([("public".to_owned(), public)]),
            ..Catalog::default()
        };
        let mut built_in = BuiltInCode::default();
        for (oid, name) in [(1574, "nextval"), (2078, "set_config"), (2923, "query_to_xml")] {
            built_in.add(oid, name, classify(name, Volatility::Volatile));
        }
        Self { catalog, code: Code::new(Arc::new(built_in)), next: 30_000 }
    }

    fn function(&mut self, name: &str, language: &str, text: &str) -> u32 {
        let (schema, name) = name.split_once('.').unwrap_or(("public", name));
        let function = FunctionCode {
            schema: schema.to_owned(),
            name: name.to_owned(),
            path: None,
            is_definer: false,
            types: Vec::new(),
            takes_one: true,
            body: Arc::new(Body::of_function(language, text, false, None)),
            uses: Vec::new(),
            hides: false,
            declared: None,
        };
        self.next += 1;
        self.code.add_function(self.next, function);
        self.next
    }

    fn reach(&self, text: &str) -> Reach {
        self.search(Writing::Statement, |search| search.text(text))
    }

    fn search(&self, writing: Writing, add: impl FnOnce(&mut Search<'_>)) -> Reach {
        let catalog = Catalog { code: Arc::new(self.code.clone()), ..self.catalog.clone() };
        let scope = NameScope::public();
        let mut search = Search::new(&catalog, &scope, writing);
        add(&mut search);
        search.finish()
    }

    fn said(&self, text: &str) -> String {
        match self.reach(text) {
            Reach { opaque: Some(reason), .. } => reason.to_string(),
            Reach { reads, .. } if !reads.is_empty() => format!("reads {reads:?}"),
            _ => "transparent".to_owned(),
        }
    }
}

#[test]
fn code_is_reached_by_names_of_every_kind() {
    let mut world = World::new();
    world.function("plain", "sql", "SELECT $1 + 1");
    world.function("reads_r", "sql", "SELECT count(*) FROM r");
    let reads_h =
        world.function("reads_h", "plpgsql", "BEGIN RETURN (SELECT count(*) FROM h); END");
    world.function("one", "sql", "SELECT reads_h()");
    world.function("two", "plpgsql", "BEGIN RETURN one(); END");
    world.function("other.hidden", "sql", "SELECT * FROM h");
    world.function("seq", "sql", "SELECT nextval('s')");
    let operator = OperatorCode {
        schema: "public".to_owned(),
        name: "###".to_owned(),
        uses: vec![Use::Function(reads_h)],
        over_built_in: true,
    };
    world.code.add_operator(40_001, operator);
    let domain = TypeCode {
        schema: "public".to_owned(),
        name: "dom".to_owned(),
        made: vec![Use::Function(reads_h)],
        ..TypeCode::default()
    };
    world.code.add_type(40_002, 40_003, domain);
    let list = TypeCode {
        name: "pair".to_owned(),
        schema: "public".to_owned(),
        parts: vec![40_003],
        ..TypeCode::default()
    };
    world.code.add_type(40_004, 0, list);
    let texts = [
        "SELECT plain(1)",
        "SELECT reads_r()",
        "SELECT reads_h()",
        "SELECT two()",
        "SELECT x.two FROM r AS x",
        "SELECT two FROM r",
        "SELECT 1 ### 2",
        "SELECT 1 OPERATOR(public.###) 2",
        "SELECT 7::dom",
        "SELECT '{7}'::public.dom[]",
        "SELECT '(7)'::pair",
        "SELECT hidden()",
        "SELECT other.hidden()",
        "SELECT query_to_xml('select 1', true, true, '')",
        "SELECT pg_catalog.ts_stat",
        "SELECT nextval('s')",
        "SELECT seq()",
        "SELECT pg_temp.f()",
    ];
    let lines = texts.iter().map(|text| format!("{text}\n  {}\n", world.said(text)));
    expect![[r#"
        SELECT plain(1)
          transparent
        SELECT reads_r()
          reads {"\"public\".\"r\""}
        SELECT reads_h()
          function reads_h() reads the distributed table "public"."h"
        SELECT two()
          function reads_h() reads the distributed table "public"."h"
        SELECT x.two FROM r AS x
          function reads_h() reads the distributed table "public"."h"
        SELECT two FROM r
          transparent
        SELECT 1 ### 2
          function reads_h() reads the distributed table "public"."h"
        SELECT 1 OPERATOR(public.###) 2
          function reads_h() reads the distributed table "public"."h"
        SELECT 7::dom
          function reads_h() reads the distributed table "public"."h"
        SELECT '{7}'::public.dom[]
          function reads_h() reads the distributed table "public"."h"
        SELECT '(7)'::pair
          function reads_h() reads the distributed table "public"."h"
        SELECT hidden()
          transparent
        SELECT other.hidden()
          function other.hidden() reads the distributed table "public"."h"
        SELECT query_to_xml('select 1', true, true, '')
          function query_to_xml() runs SQL that it gets as text
        SELECT pg_catalog.ts_stat
          transparent
        SELECT nextval('s')
          transparent
        SELECT seq()
          function seq() calls nextval()
        SELECT pg_temp.f()
          this statement uses temporary objects
    "#]]
    .assert_eq(&lines.collect::<String>());
}

#[test]
fn declarations_say_where_code_may_run() {
    let mut world = World::new();
    let f = world.function("f", "plpgsql", "BEGIN EXECUTE x; END");
    let reach = |world: &World, writing| {
        let reach = world.search(writing, |search| search.text("SELECT f()"));
        reach.opaque.map_or_else(|| "runs".to_owned(), |reason| reason.does)
    };
    for (declared, statement, row) in [
        (None, "runs SQL that it builds (EXECUTE)", "runs SQL that it builds (EXECUTE)"),
        (Some(Declaration::Row), "is declared 'row': it may run beside its row only", "runs"),
        (Some(Declaration::Replicated), "runs", "runs"),
        (Some(Declaration::Home), "is declared 'home'", "is declared 'home'"),
    ] {
        world.code.function_mut(f).unwrap().declared = declared;
        assert_eq!(reach(&world, Writing::Statement), statement, "{declared:?}");
        assert_eq!(reach(&world, Writing::Row), row, "{declared:?}");
    }
}

#[test]
fn nobodys_word_counts_for_rows_in_transit() {
    let mut world = World::new();
    let plain = world.function("plain", "sql", "SELECT $1 > 0");
    let sworn = world.function("sworn", "plpgsql", "BEGIN EXECUTE x; END");
    world.code.function_mut(sworn).unwrap().declared = Some(Declaration::Replicated);
    let of = |made: Vec<Use>, defaults: Vec<Use>, parts: Vec<u32>| TypeCode {
        schema: "public".to_owned(),
        name: "t".to_owned(),
        made,
        defaults,
        parts,
        ..TypeCode::default()
    };
    world.code.add_type(40_000, 40_001, of(vec![Use::Function(plain)], Vec::new(), vec![23]));
    world.code.add_type(40_002, 40_003, of(vec![Use::Function(sworn)], Vec::new(), vec![23]));
    // A composite type, and a domain over an array of it.
    world.code.add_type(40_004, 40_005, of(Vec::new(), Vec::new(), vec![25, 40_003]));
    world.code.add_type(40_006, 0, of(Vec::new(), Vec::new(), vec![40_005]));
    world.code.add_type(40_008, 0, of(Vec::new(), vec![Use::Function(sworn)], vec![23]));
    for (oid, expected) in [
        (40_000, true),
        (40_001, true),
        (40_002, true),
        (40_006, true),
        (40_008, false),
        (23, false),
    ] {
        let reach = world.search(Writing::Transit, |search| search.make(oid));
        assert_eq!(reach.opaque.is_some(), expected, "{oid}");
        let stored = world.search(Writing::Row, |search| search.make(oid));
        assert!(stored.opaque.is_none(), "{oid}");
    }
}

#[test]
fn triggers_fire_through_children_and_foreign_keys() {
    let mut world = World::new();
    let f = world.function("f", "plpgsql", "BEGIN INSERT INTO r VALUES (1); RETURN NEW; END");
    let trigger = Attached {
        kind: AttachedKind::Trigger,
        name: "t".to_owned(),
        events: events::DELETE,
        changes_row: false,
        uses: vec![Use::Function(f)],
        is_folded: false,
    };
    world.code.attach(20_002, trigger);
    let with = |relation, by, as_event| super::WrittenWith {
        relation,
        schema: "public".to_owned(),
        name: "l".to_owned(),
        by,
        as_event,
        columns: Vec::new(),
    };
    world.code.write_with(20_000, with(20_001, events::ALL, 0));
    world.code.write_with(20_001, with(20_002, events::DELETE, events::DELETE));
    let table = world.catalog.relations["public"]["h"].clone();
    let fires =
        |events| world.search(Writing::Row, |search| search.write(&table, events)).opaque.is_some();
    assert!(fires(events::DELETE));
    assert!(!fires(events::INSERT));
    assert!(!fires(events::UPDATE));
}

#[test]
fn chains_of_thousands_of_functions_cost_what_they_are_long() {
    let mut world = World::new();
    world.function("f0", "sql", "SELECT query_to_xml('select 1', true, true, '')");
    for number in 1..5_000 {
        let text = format!("SELECT f{}()", number - 1);
        world.function(&format!("f{number}"), "sql", &text);
    }
    let catalog = Catalog { code: Arc::new(world.code.clone()), ..world.catalog.clone() };
    let scope = NameScope::public();
    let mut search = Search::new(&catalog, &scope, Writing::Statement);
    search.text("SELECT f4999()");
    assert!(search.finish().opaque.is_some());
}

#[test]
fn code_that_comes_to_do_more_concerns_what_may_call_it() {
    let mut before = World::new();
    let plain = before.function("plain", "sql", "SELECT $1 + 1");
    before.function("calls_plain", "sql", "SELECT plain($1)");
    before.function("calls_later", "plpgsql", "BEGIN RETURN later(1); END");
    before.function("reads_l", "sql", "SELECT count(*) FROM l");
    let texts = [
        "SELECT plain(1)",
        "SELECT calls_plain(1)",
        "SELECT calls_later(1)",
        "SELECT later(1)",
        "SELECT reads_l()",
        "SELECT lower('x')",
    ];
    let concerned_if = |after: &World, is_asked: bool, changed_sight: bool| -> Vec<&str> {
        let of =
            |world: &World| Catalog { code: Arc::new(world.code.clone()), ..world.catalog.clone() };
        let grown = grown(&of(&before), &of(after), changed_sight);
        let calls = |text: &&&str| before.reach(text).calls.into_iter().collect::<Vec<_>>();
        let is_concerned = |text: &&&str| grown.may_be_called(&calls(text), is_asked);
        texts.iter().filter(is_concerned).copied().collect()
    };
    let concerned = |after: &World, is_asked| concerned_if(after, is_asked, false);
    // `reads_l` is what it was, and may have come into sight.
    assert_eq!(concerned_if(&before, false, true), ["SELECT reads_l()"]);
    let replaced = |text: &str| {
        let mut after =
            World { catalog: before.catalog.clone(), code: before.code.clone(), ..before };
        let body = Arc::new(Body::of_function("plpgsql", text, false, None));
        after.code.function_mut(plain).unwrap().body = body;
        after
    };
    assert_eq!(concerned(&replaced("BEGIN RETURN 2; END"), false), [""; 0]);
    let reads = replaced("BEGIN RETURN (SELECT count(*) FROM h); END");
    assert_eq!(concerned(&reads, false), ["SELECT plain(1)", "SELECT calls_plain(1)"]);
    let catches = replaced(
        "BEGIN INSERT INTO h VALUES (1); RETURN 1; EXCEPTION WHEN OTHERS THEN RETURN 2; END",
    );
    // What is asked afterwards may be misled.
    assert_eq!(concerned(&catches, true), ["SELECT plain(1)", "SELECT calls_plain(1)"]);
    let mut made = replaced("BEGIN RETURN 2; END");
    made.function("later", "sql", "SELECT count(*) FROM h");
    assert_eq!(concerned(&made, false), ["SELECT calls_later(1)", "SELECT later(1)"]);
    let mut made = replaced("BEGIN RETURN 2; END");
    made.function("later", "sql", "SELECT 1");
    assert_eq!(concerned(&made, false), [""; 0]);
    let mut elsewhere = replaced("BEGIN RETURN 2; END");
    let oid = elsewhere.function("later", "sql", "SELECT count(*) FROM h");
    elsewhere.code.function_mut(oid).unwrap().schema = "other".to_owned();
    assert_eq!(concerned(&elsewhere, false), [""; 0], "in no search path");
    assert_eq!(
        concerned_if(&elsewhere, false, true),
        ["SELECT calls_later(1)", "SELECT later(1)", "SELECT reads_l()"]
    );
    let oid = made.function("everywhere", "sql", "SELECT count(*) FROM h");
    made.code.add_everywhere(Use::Function(oid));
    assert_eq!(concerned(&made, false).len(), texts.len());
}
