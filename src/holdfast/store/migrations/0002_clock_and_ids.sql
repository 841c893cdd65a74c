-- The database clock, derived ids, and the row count check of every batch.

-- Declared stable so that it may stand in an UPDATE on a sharded table; tests replace it to move time.
create function holdfast.clock() returns timestamptz
language plpgsql stable parallel safe as $$
begin
    return clock_timestamp();
end
$$;

create function holdfast.bucket_of(org text, key text) returns smallint
language plpgsql immutable strict parallel safe as $$
begin
    return get_byte(sha256(convert_to(org || chr(31) || key, 'UTF8')), 0);
end
$$;

-- A UUIDv7 whose last byte is the bucket; without a bucket it keeps a random one.
create function holdfast.new_id(bucket int default null) returns uuid
language plpgsql volatile as $$
declare
    bytes bytea := uuid_send(gen_random_uuid());
    milliseconds bigint := floor(extract(epoch from holdfast.clock()) * 1000);
begin
    bytes := overlay(bytes placing substring(int8send(milliseconds) from 3) from 1 for 6);
    bytes := set_byte(bytes, 6, (get_byte(bytes, 6) & 15) | 112);
    if bucket is not null then
        bytes := set_byte(bytes, 15, bucket);
    end if;
    return encode(bytes, 'hex')::uuid;
end
$$;

-- Called behind each write of a batch: the server compares the counts, so COMMIT can travel in the same flush.
create function holdfast.expect(label text, got bigint, wanted bigint) returns void
language plpgsql as $$
begin
    if got is distinct from wanted then
        raise exception '%: % rows instead of %', label, got, wanted using errcode = 'HF001';
    end if;
end
$$;
