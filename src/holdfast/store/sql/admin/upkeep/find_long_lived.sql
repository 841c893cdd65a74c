-- A page of unfinished instances, and which of them still need rows from before a moment.
select f.visited, f.due, f.last_org, f.last_status, f.last_id
from holdfast.find_long_lived($1::timestamptz, $2::text, $3::text, $4::uuid, $5::int) f
