-- One version of a decision table, or its newest; a table of an organisation's own hides the system's of the same name.
select t.org_id, t.name, t.version, t.hash, t.created_by, t.reason, t.published_at, t.content
from holdfast.decision_tables t
where t.org_id in ($1::text, '_system') and t.name = $2::text and ($3::int is null or t.version = $3::int)
    and (t.org_id = $1::text
        or not exists (select from holdfast.decision_tables o where o.org_id = $1::text and o.name = $2::text))
order by t.version desc
limit 1
