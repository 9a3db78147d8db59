"""The functions of a PostgreSQL store: derived values and appends on the server.

Rules:

- They belong to the migrations (``palaver.store.postgres.schema``), with the same rules.
- Their statements are planned for all later calls of a session, even if the tables were small at first. So ``append``
  forbids reading a whole table that has an index.

Stability: experimental.
"""

from __future__ import annotations

from typing import Final

# Columns are separated by U+001F and null is U+001E: neither can occur in a name, in ASCII JSON, or in a number. They
# are written as chr(): the escapes of U&'' are an error when standard_conforming_strings is off.
_PROOFS: Final = """
create function {s}.proof_of(variadic columns text[]) returns bytea language sql stable as $$
    select substring(sha256(convert_to(array_to_string(columns, chr(31), chr(30)), 'UTF8')) from 1 for 8)
$$;
create function {s}.thread_proof(r {s}.threads) returns bytea language sql stable as $$
    select {s}.proof_of(r.id, r.token::text, r.title, array_to_string(r.tags, chr(30)), r.metadata,
        r.created_at::text, r.updated_at::text, r.changed::text, r.length::text)
$$;
create function {s}.branch_proof(r {s}.branches) returns bytea language sql stable as $$
    select {s}.proof_of(r.thread::text, r.name, r.head::text)
$$;
create function {s}.move_proof(r {s}.moves) returns bytea language sql stable as $$
    select {s}.proof_of(r.token::text, r.thread::text, r.branch, r.kind, r.before::text, r.after::text,
        r.moved_at::text)
$$;
create function {s}.key_proof(r {s}.keys) returns bytea language sql stable as $$
    select {s}.proof_of(r.thread::text, r.key, r.place::text, r.count::text)
$$;
create function {s}.body_proof(r {s}.bodies) returns bytea language sql stable as $$
    select substring(sha256(r.digest || int2send(r.encoding) || int8send(r.size) || r.uses) from 1 for 8)
$$;
create function {s}.words_proof(r {s}.words) returns bytea language sql stable as $$
    select substring(sha256(int8send(r.body) || convert_to(r.words, 'UTF8')) from 1 for 8)
$$;
create function {s}.blob_proof(r {s}.blobs) returns bytea language sql stable as $$
    select substring(sha256(r.digest || int2send(r.encoding) || int8send(r.size)) from 1 for 8)
$$;
"""

# Bytes are concatenated, with the length of each; `kept` are the bodies that are wanted, if not all are.
_KEEP: Final = """
create function {s}.keep(
    blob_digests bytea, blob_encodings smallint[], blob_sizes bigint[], blob_lengths integer[], blob_data bytea,
    digests bytea, encodings smallint[], sizes bigint[], lengths integer[], data bytea, used integer[], uses bytea,
    kept bytea[])
returns void language plpgsql as $$
begin
    if blob_digests <> '' then
        insert into {s}.blobs (digest, encoding, size, data, proof)
        select m.digest, m.encoding, m.size, substring(blob_data from m.start for m.length),
            {s}.blob_proof(row(m.digest, m.encoding, m.size, null, null)::{s}.blobs)
        from (
            select u.*, substring(blob_digests from n::integer * 32 - 31 for 32) as digest,
                (sum(u.length) over (order by n))::integer - u.length + 1 as start
            from unnest(blob_encodings, blob_sizes, blob_lengths) with ordinality as u (encoding, size, length, n)
        ) m order by m.digest
        on conflict (digest) do nothing;
    end if;
    with added as (
        insert into {s}.bodies (digest, encoding, size, data, uses, proof)
        select m.digest, m.encoding, m.size, substring(data from m.start for m.length), m.uses,
            {s}.body_proof(row(null, m.digest, m.encoding, m.size, null, m.uses, null)::{s}.bodies)
        from (
            select u.encoding, u.size, u.length, substring(digests from n::integer * 32 - 31 for 32) as digest,
                (sum(u.length) over (order by n))::integer - u.length + 1 as start,
                substring(uses from 32 * ((sum(u.used) over (order by n))::integer - u.used) + 1 for 32 * u.used)
                    as uses
            from unnest(encodings, sizes, lengths, used) with ordinality as u (encoding, size, length, used, n)
        ) m where kept is null or m.digest = any(kept) order by m.digest
        on conflict (digest) do nothing returning body
    )
    insert into {s}.fresh select a.body from added a;
end
$$;
"""

# Returns the number of the thread, also to a repeated call of its creator; null to others.
_BEGIN: Final = """
create function {s}.begin_thread(new_id text, new_token uuid, title text, tags text[], metadata text, at bigint)
returns bigint language plpgsql as $$
declare
    t {s}.threads%rowtype;
    b {s}.branches%rowtype;
begin
    t.id := new_id;
    t.token := new_token;
    t.title := title;
    t.tags := tags;
    t.metadata := metadata;
    t.created_at := at;
    t.updated_at := at;
    t.changed := nextval('{s}.changes');
    t.length := 0;
    insert into {s}.threads (id, token, title, tags, metadata, created_at, updated_at, changed, length, proof)
    values (t.id, t.token, t.title, t.tags, t.metadata, t.created_at, t.updated_at, t.changed, t.length,
        {s}.thread_proof(t))
    on conflict (id) do nothing returning thread into b.thread;
    if not found then
        return (select x.thread from {s}.threads x where x.id = new_id and x.token = new_token);
    end if;
    b.name := 'main';
    insert into {s}.branches (thread, name, proof) values (b.thread, b.name, {s}.branch_proof(b));
    return b.thread;
end
$$;
"""

# `wanted` is a JSON array of appends, those of one branch side by side, and the threads in the order of their names.
# The result is a row for each: with 'joined' the entry before the first; with 'moved' the head that was found; with
# 'repeated' the place of the first entry and how many there are; 'busy' when another session holds the thread and
# `waits` is false. A last row of nulls ends the loop, after the thread and the branch before it were written.
_APPEND: Final = """
create function {s}.append(wanted json, waits boolean, again boolean, at bigint,
    ids text[], stamps smallint[], times bigint[], of_entries bytea,
    blob_digests bytea, blob_encodings smallint[], blob_sizes bigint[], blob_lengths integer[], blob_data bytea,
    digests bytea, encodings smallint[], sizes bigint[], lengths integer[], data bytea, used integer[], uses bytea)
returns table (outcome text, entry text, place bigint, count bigint)
language plpgsql set enable_seqscan = off as $$
declare
    a record;
    t {s}.threads%rowtype;
    b {s}.branches%rowtype;
    k {s}.keys%rowtype;
    there boolean;
    busy boolean;
    longer boolean := false;
    further boolean := false;
    head text;
    seal bytea;
    done integer := 0;
    numbers integer[] := '{}';
    threads bigint[] := '{}';
    places bigint[] := '{}';
    parents bigint[] := '{}';
    kept bytea[] := '{}';
    seals bytea[] := '{}';
    joined integer := 0;
begin
    perform pg_advisory_xact_lock_shared({lock});
    for a in
        select * from json_to_recordset(wanted)
            as x (thread text, branch text, expects boolean, expected text, key text, messages integer)
        union all select null, null, null, null, null, 0
    loop
        if further and (a.thread, a.branch) is distinct from (t.id, b.name) then
            update {s}.branches x set head = b.head, proof = {s}.branch_proof(b)
            where x.thread = b.thread and x.name = b.name;
            further := false;
        end if;
        if longer and a.thread is distinct from t.id then
            t.updated_at := at;
            t.changed := nextval('{s}.changes');
            update {s}.threads x set length = t.length, updated_at = t.updated_at, changed = t.changed,
                proof = {s}.thread_proof(t) where x.thread = t.thread;
            longer := false;
        end if;
        exit when a.thread is null;
        done := done + a.messages;
        outcome := null;
        entry := null;
        place := null;
        count := null;
        if t.id is distinct from a.thread then
            b := null;
            if waits then
                select * into t from {s}.threads x where x.id = a.thread for no key update;
                busy := false;
            else
                select * into t from {s}.threads x where x.id = a.thread for no key update skip locked;
                busy := not found and exists (select from {s}.threads x where x.id = a.thread);
            end if;
        end if;
        if t.id is null then
            outcome := case when busy then 'busy' else 'no thread' end;
            return next;
            continue;
        end if;
        if again then
            select p.id into entry from {s}.entries e
            left join {s}.entries p on p.thread = t.thread and p.place = e.parent
            where e.thread = t.thread and e.id = ids[done - a.messages + 1] and a.messages > 0;
            if found then
                outcome := 'joined';
                return next;
                continue;
            end if;
        end if;
        if a.key is not null then
            select * into k from {s}.keys x where x.thread = t.thread and x.key = a.key;
            if found then
                outcome := 'repeated';
                place := k.place;
                count := k.count;
                return next;
                continue;
            end if;
        end if;
        if b.name is distinct from a.branch then
            select * into b from {s}.branches x where x.thread = t.thread and x.name = a.branch;
            if b.head is null then
                head := null;
                seal := sha256(convert_to('palaver thread ' || t.id, 'UTF8'));
            else
                select e.id, e.seal into strict head, seal from {s}.entries e
                where e.thread = t.thread and e.place = b.head;
            end if;
        end if;
        if b.name is null then
            outcome := 'no branch';
            return next;
            continue;
        end if;
        entry := head;
        if a.expects and head is distinct from a.expected then
            outcome := 'moved';
            return next;
            continue;
        end if;
        outcome := 'joined';
        return next;
        if a.key is not null then
            k.thread := t.thread;
            k.key := a.key;
            k.place := t.length;
            k.count := a.messages;
            insert into {s}.keys values (k.thread, k.key, k.place, k.count, {s}.key_proof(k));
        end if;
        for i in done - a.messages + 1 .. done loop
            joined := joined + 1;
            numbers[joined] := i;
            threads[joined] := t.thread;
            places[joined] := t.length;
            parents[joined] := b.head;
            kept[joined] := substring(of_entries from i * 32 - 31 for 32);
            seal := sha256(seal || convert_to(
                ids[i] || ' ' || stamps[i] || ' ' || coalesce(times[i]::text, '-') || ' ', 'UTF8') || kept[joined]);
            seals[joined] := seal;
            head := ids[i];
            b.head := t.length;
            t.length := t.length + 1;
            longer := true;
            further := true;
        end loop;
    end loop;
    if joined = 0 then
        return;
    end if;
    perform {s}.keep(blob_digests, blob_encodings, blob_sizes, blob_lengths, blob_data,
        digests, encodings, sizes, lengths, data, used, uses,
        case when joined < cardinality(ids) then kept end);
    insert into {s}.entries (thread, place, parent, body, sent_at, stamps, id, seal)
    select n.thread, n.place, n.parent, (select o.body from {s}.bodies o where o.digest = n.digest),
        times[n.i], stamps[n.i], ids[n.i], n.seal
    from unnest(numbers, threads, places, parents, kept, seals) as n (i, thread, place, parent, digest, seal);
end
$$;
"""

FUNCTIONS: Final = (_PROOFS, _BEGIN, _KEEP, _APPEND)
