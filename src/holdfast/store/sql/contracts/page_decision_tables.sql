-- A page of the decision tables an organisation has, by name, each in its newest version.
select distinct on (t.name) t.org_id, t.name, t.version, t.hash, t.created_by, t.reason, t.published_at
from holdfast.decision_tables t
where t.org_id in ($1::text, '_system') and t.name > $2::text
order by t.name, t.org_id = '_system', t.version desc
limit $3::int
