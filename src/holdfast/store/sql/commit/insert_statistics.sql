-- Append what this commit ended, for the upkeep to fold into the sums.
insert into holdfast.statistics_deltas (org_id, hour, tallies)
select u.org, $3::timestamptz, u.tallies from unnest($1::text[], $2::jsonb[]) as u(org, tallies)
